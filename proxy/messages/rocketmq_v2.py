"""Messages of the service apache.rocketmq.v2. Made by tests/tools/generate_messages.py; do not edit.

The classes live in a descriptor pool of their own, so that an official client may be imported beside them.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.internal import enum_type_wrapper

_FILE = descriptor_pb2.FileDescriptorProto.FromString(
    b"\n+understudy/proxy/messages/rocketmq_v2.proto\x12\x12a"
    b"pache.rocketmq.v2\x1a\x1egoogle/protobuf/duration.prot"
    b'o\x1a\x1fgoogle/protobuf/timestamp.proto"f\n\x10FilterExpr'
    b"ession\x122\n\x04type\x18\x01 \x01(\x0e2\x1e.apache.rocketmq.v2.Filter"
    b'TypeR\x04type\x12\x1e\n\nexpression\x18\x02 \x01(\tR\nexpression"\xef\x01\n\x0bR'
    b"etryPolicy\x12!\n\x0cmax_attempts\x18\x01 \x01(\x05R\x0bmaxAttempts\x12Y\n"
    b"\x13exponential_backoff\x18\x02 \x01(\x0b2&.apache.rocketmq.v2."
    b"ExponentialBackoffH\x00R\x12exponentialBackoff\x12V\n\x12cust"
    b"omized_backoff\x18\x03 \x01(\x0b2%.apache.rocketmq.v2.Custom"
    b'izedBackoffH\x00R\x11customizedBackoffB\n\n\x08strategy"\x96\x01\n'
    b"\x12ExponentialBackoff\x123\n\x07initial\x18\x01 \x01(\x0b2\x19.google.pr"
    b"otobuf.DurationR\x07initial\x12+\n\x03max\x18\x02 \x01(\x0b2\x19.google.p"
    b"rotobuf.DurationR\x03max\x12\x1e\n\nmultiplier\x18\x03 \x01(\x02R\nmulti"
    b'plier"B\n\x11CustomizedBackoff\x12-\n\x04next\x18\x01 \x03(\x0b2\x19.googl'
    b'e.protobuf.DurationR\x04next"M\n\x08Resource\x12-\n\x12resourc'
    b"e_namespace\x18\x01 \x01(\tR\x11resourceNamespace\x12\x12\n\x04name\x18\x02 \x01"
    b'(\tR\x04name"\x8d\x01\n\x11SubscriptionEntry\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.'
    b"apache.rocketmq.v2.ResourceR\x05topic\x12D\n\nexpression"
    b"\x18\x02 \x01(\x0b2$.apache.rocketmq.v2.FilterExpressionR\nex"
    b'pression"1\n\x07Address\x12\x12\n\x04host\x18\x01 \x01(\tR\x04host\x12\x12\n\x04port\x18'
    b'\x02 \x01(\x05R\x04port"\x81\x01\n\tEndpoints\x129\n\x06scheme\x18\x01 \x01(\x0e2!.apac'
    b"he.rocketmq.v2.AddressSchemeR\x06scheme\x129\n\taddresse"
    b's\x18\x02 \x03(\x0b2\x1b.apache.rocketmq.v2.AddressR\taddresses"'
    b"i\n\x06Broker\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x0e\n\x02id\x18\x02 \x01(\x05R\x02id\x12;\n"
    b"\tendpoints\x18\x03 \x01(\x0b2\x1d.apache.rocketmq.v2.EndpointsR"
    b'\tendpoints"\x99\x02\n\x0cMessageQueue\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.apa'
    b"che.rocketmq.v2.ResourceR\x05topic\x12\x0e\n\x02id\x18\x02 \x01(\x05R\x02id\x12"
    b">\n\npermission\x18\x03 \x01(\x0e2\x1e.apache.rocketmq.v2.Permiss"
    b"ionR\npermission\x122\n\x06broker\x18\x04 \x01(\x0b2\x1a.apache.rocketm"
    b"q.v2.BrokerR\x06broker\x12Q\n\x14accept_message_types\x18\x05 \x03("
    b"\x0e2\x1f.apache.rocketmq.v2.MessageTypeR\x12acceptMessag"
    b'eTypes"X\n\x06Digest\x122\n\x04type\x18\x01 \x01(\x0e2\x1e.apache.rocketmq'
    b".v2.DigestTypeR\x04type\x12\x1a\n\x08checksum\x18\x02 \x01(\tR\x08checksum"
    b'"\x8f\x0b\n\x10SystemProperties\x12\x15\n\x03tag\x18\x01 \x01(\tH\x00R\x03tag\x88\x01\x01\x12\x12\n\x04'
    b"keys\x18\x02 \x03(\tR\x04keys\x12\x1d\n\nmessage_id\x18\x03 \x01(\tR\tmessageId\x12"
    b";\n\x0bbody_digest\x18\x04 \x01(\x0b2\x1a.apache.rocketmq.v2.Digest"
    b"R\nbodyDigest\x12A\n\rbody_encoding\x18\x05 \x01(\x0e2\x1c.apache.roc"
    b"ketmq.v2.EncodingR\x0cbodyEncoding\x12B\n\x0cmessage_type\x18"
    b"\x06 \x01(\x0e2\x1f.apache.rocketmq.v2.MessageTypeR\x0bmessageT"
    b"ype\x12A\n\x0eborn_timestamp\x18\x07 \x01(\x0b2\x1a.google.protobuf.Ti"
    b"mestampR\rbornTimestamp\x12\x1b\n\tborn_host\x18\x08 \x01(\tR\x08bornH"
    b"ost\x12H\n\x0fstore_timestamp\x18\t \x01(\x0b2\x1a.google.protobuf.T"
    b"imestampH\x01R\x0estoreTimestamp\x88\x01\x01\x12\x1d\n\nstore_host\x18\n \x01("
    b"\tR\tstoreHost\x12N\n\x12delivery_timestamp\x18\x0b \x01(\x0b2\x1a.googl"
    b"e.protobuf.TimestampH\x02R\x11deliveryTimestamp\x88\x01\x01\x12*\n\x0e"
    b"receipt_handle\x18\x0c \x01(\tH\x03R\rreceiptHandle\x88\x01\x01\x12\x19\n\x08queu"
    b"e_id\x18\r \x01(\x05R\x07queueId\x12&\n\x0cqueue_offset\x18\x0e \x01(\x03H\x04R\x0bque"
    b"ueOffset\x88\x01\x01\x12M\n\x12invisible_duration\x18\x0f \x01(\x0b2\x19.google"
    b".protobuf.DurationH\x05R\x11invisibleDuration\x88\x01\x01\x12.\n\x10de"
    b"livery_attempt\x18\x10 \x01(\x05H\x06R\x0fdeliveryAttempt\x88\x01\x01\x12(\n\rme"
    b"ssage_group\x18\x11 \x01(\tH\x07R\x0cmessageGroup\x88\x01\x01\x12(\n\rtrace_co"
    b"ntext\x18\x12 \x01(\tH\x08R\x0ctraceContext\x88\x01\x01\x12s\n&orphaned_trans"
    b"action_recovery_duration\x18\x13 \x01(\x0b2\x19.google.protobuf"
    b".DurationH\tR#orphanedTransactionRecoveryDuration"
    b"\x88\x01\x01\x12T\n\x11dead_letter_queue\x18\x14 \x01(\x0b2#.apache.rocketmq"
    b'.v2.DeadLetterQueueH\nR\x0fdeadLetterQueue\x88\x01\x01\x12"\n\nlit'
    b"e_topic\x18\x15 \x01(\tH\x0bR\tliteTopic\x88\x01\x01\x12\x1f\n\x08priority\x18\x16 \x01(\x05H"
    b"\x0cR\x08priority\x88\x01\x01B\x06\n\x04_tagB\x12\n\x10_store_timestampB\x15\n\x13_d"
    b"elivery_timestampB\x11\n\x0f_receipt_handleB\x0f\n\r_queue_o"
    b"ffsetB\x15\n\x13_invisible_durationB\x13\n\x11_delivery_attemp"
    b"tB\x10\n\x0e_message_groupB\x10\n\x0e_trace_contextB)\n'_orphan"
    b"ed_transaction_recovery_durationB\x14\n\x12_dead_letter"
    b'_queueB\r\n\x0b_lite_topicB\x0b\n\t_priority"F\n\x0fDeadLetter'
    b"Queue\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1d\n\nmessage_id\x18\x02 \x01(\tR"
    b'\tmessageId"\xc1\x02\n\x07Message\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.r'
    b"ocketmq.v2.ResourceR\x05topic\x12X\n\x0fuser_properties\x18\x02 "
    b"\x03(\x0b2/.apache.rocketmq.v2.Message.UserPropertiesE"
    b"ntryR\x0euserProperties\x12Q\n\x11system_properties\x18\x03 \x01(\x0b2"
    b"$.apache.rocketmq.v2.SystemPropertiesR\x10systemPro"
    b"perties\x12\x12\n\x04body\x18\x04 \x01(\x0cR\x04body\x1aA\n\x13UserPropertiesEnt"
    b'ry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01"S'
    b"\n\nAssignment\x12E\n\rmessage_queue\x18\x01 \x01(\x0b2 .apache.roc"
    b'ketmq.v2.MessageQueueR\x0cmessageQueue"P\n\x06Status\x12,\n'
    b"\x04code\x18\x01 \x01(\x0e2\x18.apache.rocketmq.v2.CodeR\x04code\x12\x18\n\x07m"
    b'essage\x18\x02 \x01(\tR\x07message"\x90\x01\n\x02UA\x128\n\x08language\x18\x01 \x01(\x0e2\x1c'
    b".apache.rocketmq.v2.LanguageR\x08language\x12\x18\n\x07versio"
    b"n\x18\x02 \x01(\tR\x07version\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12\x1a\n\x08"
    b'hostname\x18\x04 \x01(\tR\x08hostname"\xf5\x04\n\x08Settings\x12D\n\x0bclient_'
    b"type\x18\x01 \x01(\x0e2\x1e.apache.rocketmq.v2.ClientTypeH\x01R\ncl"
    b"ientType\x88\x01\x01\x12E\n\x0caccess_point\x18\x02 \x01(\x0b2\x1d.apache.rocke"
    b"tmq.v2.EndpointsH\x02R\x0baccessPoint\x88\x01\x01\x12K\n\x0ebackoff_po"
    b"licy\x18\x03 \x01(\x0b2\x1f.apache.rocketmq.v2.RetryPolicyH\x03R\rb"
    b"ackoffPolicy\x88\x01\x01\x12G\n\x0frequest_timeout\x18\x04 \x01(\x0b2\x19.googl"
    b"e.protobuf.DurationH\x04R\x0erequestTimeout\x88\x01\x01\x12@\n\npubl"
    b"ishing\x18\x05 \x01(\x0b2\x1e.apache.rocketmq.v2.PublishingH\x00R\n"
    b"publishing\x12F\n\x0csubscription\x18\x06 \x01(\x0b2 .apache.rocket"
    b"mq.v2.SubscriptionH\x00R\x0csubscription\x125\n\nuser_agent"
    b"\x18\x07 \x01(\x0b2\x16.apache.rocketmq.v2.UAR\tuserAgent\x122\n\x06met"
    b"ric\x18\x08 \x01(\x0b2\x1a.apache.rocketmq.v2.MetricR\x06metricB\t\n"
    b"\x07pub_subB\x0e\n\x0c_client_typeB\x0f\n\r_access_pointB\x11\n\x0f_ba"
    b'ckoff_policyB\x12\n\x10_request_timeout"\x9a\x01\n\nPublishing\x12'
    b"4\n\x06topics\x18\x01 \x03(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x06t"
    b'opics\x12"\n\rmax_body_size\x18\x02 \x01(\x05R\x0bmaxBodySize\x122\n\x15val'
    b'idate_message_type\x18\x03 \x01(\x08R\x13validateMessageType"\x9a\x04'
    b"\n\x0cSubscription\x127\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.rocketmq."
    b"v2.ResourceH\x00R\x05group\x88\x01\x01\x12K\n\rsubscriptions\x18\x02 \x03(\x0b2%"
    b".apache.rocketmq.v2.SubscriptionEntryR\rsubscript"
    b"ions\x12\x17\n\x04fifo\x18\x03 \x01(\x08H\x01R\x04fifo\x88\x01\x01\x121\n\x12receive_batch_s"
    b"ize\x18\x04 \x01(\x05H\x02R\x10receiveBatchSize\x88\x01\x01\x12P\n\x14long_polling"
    b"_timeout\x18\x05 \x01(\x0b2\x19.google.protobuf.DurationH\x03R\x12lon"
    b"gPollingTimeout\x88\x01\x01\x12;\n\x17lite_subscription_quota\x18\x06 "
    b"\x01(\x05H\x04R\x15liteSubscriptionQuota\x88\x01\x01\x122\n\x13max_lite_topi"
    b"c_size\x18\x07 \x01(\x05H\x05R\x10maxLiteTopicSize\x88\x01\x01B\x08\n\x06_groupB\x07\n"
    b"\x05_fifoB\x15\n\x13_receive_batch_sizeB\x17\n\x15_long_polling_t"
    b"imeoutB\x1a\n\x18_lite_subscription_quotaB\x16\n\x14_max_lite_"
    b'topic_size"h\n\x06Metric\x12\x0e\n\x02on\x18\x01 \x01(\x08R\x02on\x12@\n\tendpoint'
    b"s\x18\x02 \x01(\x0b2\x1d.apache.rocketmq.v2.EndpointsH\x00R\tendpoi"
    b'nts\x88\x01\x01B\x0c\n\n_endpoints"\xd9\x01\n\x0cOffsetOption\x12A\n\x06policy\x18'
    b"\x01 \x01(\x0e2'.apache.rocketmq.v2.OffsetOption.PolicyH\x00"
    b"R\x06policy\x12\x18\n\x06offset\x18\x02 \x01(\x03H\x00R\x06offset\x12\x17\n\x06tail_n\x18\x03 \x01"
    b'(\x03H\x00R\x05tailN\x12\x1e\n\ttimestamp\x18\x04 \x01(\x03H\x00R\ttimestamp"$\n\x06P'
    b"olicy\x12\x08\n\x04LAST\x10\x00\x12\x07\n\x03MIN\x10\x01\x12\x07\n\x03MAX\x10\x02B\r\n\x0boffset_type"
    b'"\x84\x01\n\x11QueryRouteRequest\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.r'
    b"ocketmq.v2.ResourceR\x05topic\x12;\n\tendpoints\x18\x02 \x01(\x0b2\x1d."
    b'apache.rocketmq.v2.EndpointsR\tendpoints"\x91\x01\n\x12Quer'
    b"yRouteResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq"
    b".v2.StatusR\x06status\x12G\n\x0emessage_queues\x18\x02 \x03(\x0b2 .apa"
    b'che.rocketmq.v2.MessageQueueR\rmessageQueues"M\n\x12S'
    b"endMessageRequest\x127\n\x08messages\x18\x01 \x03(\x0b2\x1b.apache.roc"
    b'ketmq.v2.MessageR\x08messages"\xc8\x01\n\x0fSendResultEntry\x122'
    b"\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2.StatusR\x06stat"
    b"us\x12\x1d\n\nmessage_id\x18\x02 \x01(\tR\tmessageId\x12%\n\x0etransaction"
    b"_id\x18\x03 \x01(\tR\rtransactionId\x12\x16\n\x06offset\x18\x04 \x01(\x03R\x06offset"
    b'\x12#\n\rrecall_handle\x18\x05 \x01(\tR\x0crecallHandle"\x88\x01\n\x13SendMe'
    b"ssageResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq."
    b"v2.StatusR\x06status\x12=\n\x07entries\x18\x02 \x03(\x0b2#.apache.rock"
    b'etmq.v2.SendResultEntryR\x07entries"\xbd\x01\n\x16QueryAssign'
    b"mentRequest\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2."
    b"ResourceR\x05topic\x122\n\x05group\x18\x02 \x01(\x0b2\x1c.apache.rocketmq"
    b".v2.ResourceR\x05group\x12;\n\tendpoints\x18\x03 \x01(\x0b2\x1d.apache."
    b'rocketmq.v2.EndpointsR\tendpoints"\x8f\x01\n\x17QueryAssign'
    b"mentResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v"
    b"2.StatusR\x06status\x12@\n\x0bassignments\x18\x02 \x03(\x0b2\x1e.apache.r"
    b'ocketmq.v2.AssignmentR\x0bassignments"\xa7\x04\n\x15ReceiveMe'
    b"ssageRequest\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2"
    b".ResourceR\x05group\x12E\n\rmessage_queue\x18\x02 \x01(\x0b2 .apache"
    b".rocketmq.v2.MessageQueueR\x0cmessageQueue\x12Q\n\x11filte"
    b"r_expression\x18\x03 \x01(\x0b2$.apache.rocketmq.v2.FilterEx"
    b"pressionR\x10filterExpression\x12\x1d\n\nbatch_size\x18\x04 \x01(\x05R\t"
    b"batchSize\x12M\n\x12invisible_duration\x18\x05 \x01(\x0b2\x19.google.p"
    b"rotobuf.DurationH\x00R\x11invisibleDuration\x88\x01\x01\x12\x1d\n\nauto"
    b"_renew\x18\x06 \x01(\x08R\tautoRenew\x12P\n\x14long_polling_timeout\x18"
    b"\x07 \x01(\x0b2\x19.google.protobuf.DurationH\x01R\x12longPollingT"
    b'imeout\x88\x01\x01\x12"\n\nattempt_id\x18\x08 \x01(\tH\x02R\tattemptId\x88\x01\x01B\x15\n'
    b"\x13_invisible_durationB\x17\n\x15_long_polling_timeoutB\r\n"
    b'\x0b_attempt_id"\xdf\x01\n\x16ReceiveMessageResponse\x124\n\x06statu'
    b"s\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2.StatusH\x00R\x06status\x127\n"
    b"\x07message\x18\x02 \x01(\x0b2\x1b.apache.rocketmq.v2.MessageH\x00R\x07m"
    b"essage\x12K\n\x12delivery_timestamp\x18\x03 \x01(\x0b2\x1a.google.prot"
    b'obuf.TimestampH\x00R\x11deliveryTimestampB\t\n\x07content"\x8a'
    b"\x01\n\x0fAckMessageEntry\x12\x1d\n\nmessage_id\x18\x01 \x01(\tR\tmessageI"
    b'd\x12%\n\x0ereceipt_handle\x18\x02 \x01(\tR\rreceiptHandle\x12"\n\nlite'
    b'_topic\x18\x03 \x01(\tH\x00R\tliteTopic\x88\x01\x01B\r\n\x0b_lite_topic"\xba\x01\n\x11'
    b"AckMessageRequest\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.rocket"
    b"mq.v2.ResourceR\x05group\x122\n\x05topic\x18\x02 \x01(\x0b2\x1c.apache.ro"
    b"cketmq.v2.ResourceR\x05topic\x12=\n\x07entries\x18\x03 \x03(\x0b2#.apa"
    b'che.rocketmq.v2.AckMessageEntryR\x07entries"\x91\x01\n\x15Ack'
    b"MessageResultEntry\x12\x1d\n\nmessage_id\x18\x01 \x01(\tR\tmessageI"
    b"d\x12%\n\x0ereceipt_handle\x18\x02 \x01(\tR\rreceiptHandle\x122\n\x06stat"
    b'us\x18\x03 \x01(\x0b2\x1a.apache.rocketmq.v2.StatusR\x06status"\x8d\x01\n'
    b"\x12AckMessageResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.roc"
    b"ketmq.v2.StatusR\x06status\x12C\n\x07entries\x18\x02 \x03(\x0b2).apach"
    b'e.rocketmq.v2.AckMessageResultEntryR\x07entries"\xe8\x02\n'
    b"&ForwardMessageToDeadLetterQueueRequest\x122\n\x05group"
    b"\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05group\x122\n\x05t"
    b"opic\x18\x02 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05topic\x12"
    b"%\n\x0ereceipt_handle\x18\x03 \x01(\tR\rreceiptHandle\x12\x1d\n\nmessag"
    b"e_id\x18\x04 \x01(\tR\tmessageId\x12)\n\x10delivery_attempt\x18\x05 \x01(\x05R"
    b"\x0fdeliveryAttempt\x122\n\x15max_delivery_attempts\x18\x06 \x01(\x05R"
    b'\x13maxDeliveryAttempts\x12"\n\nlite_topic\x18\x07 \x01(\tH\x00R\tlite'
    b"Topic\x88\x01\x01B\r\n\x0b_lite_topic\"]\n'ForwardMessageToDeadL"
    b"etterQueueResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rock"
    b'etmq.v2.StatusR\x06status"\x96\x01\n\x10HeartbeatRequest\x127\n\x05g'
    b"roup\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceH\x00R\x05grou"
    b"p\x88\x01\x01\x12?\n\x0bclient_type\x18\x02 \x01(\x0e2\x1e.apache.rocketmq.v2.C"
    b'lientTypeR\nclientTypeB\x08\n\x06_group"G\n\x11HeartbeatResp'
    b"onse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2.Status"
    b'R\x06status"\xc0\x02\n\x15EndTransactionRequest\x122\n\x05topic\x18\x01 \x01('
    b"\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05topic\x12\x1d\n\nmessag"
    b"e_id\x18\x02 \x01(\tR\tmessageId\x12%\n\x0etransaction_id\x18\x03 \x01(\tR\rt"
    b"ransactionId\x12I\n\nresolution\x18\x04 \x01(\x0e2).apache.rocket"
    b"mq.v2.TransactionResolutionR\nresolution\x12=\n\x06sourc"
    b"e\x18\x05 \x01(\x0e2%.apache.rocketmq.v2.TransactionSourceR\x06"
    b'source\x12#\n\rtrace_context\x18\x06 \x01(\tR\x0ctraceContext"L\n\x16E'
    b"ndTransactionResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.r"
    b'ocketmq.v2.StatusR\x06status"4\n\x1cPrintThreadStackTra'
    b'ceCommand\x12\x14\n\x05nonce\x18\x01 \x01(\tR\x05nonce"1\n\x19ReconnectEndp'
    b'ointsCommand\x12\x14\n\x05nonce\x18\x01 \x01(\tR\x05nonce"r\n\x10ThreadStac'
    b"kTrace\x12\x14\n\x05nonce\x18\x01 \x01(\tR\x05nonce\x121\n\x12thread_stack_tra"
    b"ce\x18\x02 \x01(\tH\x00R\x10threadStackTrace\x88\x01\x01B\x15\n\x13_thread_stack"
    b'_trace"c\n\x14VerifyMessageCommand\x12\x14\n\x05nonce\x18\x01 \x01(\tR\x05n'
    b"once\x125\n\x07message\x18\x02 \x01(\x0b2\x1b.apache.rocketmq.v2.Messa"
    b'geR\x07message"+\n\x13VerifyMessageResult\x12\x14\n\x05nonce\x18\x01 \x01('
    b'\tR\x05nonce"\x81\x01\n!RecoverOrphanedTransactionCommand\x125'
    b"\n\x07message\x18\x01 \x01(\x0b2\x1b.apache.rocketmq.v2.MessageR\x07me"
    b'ssage\x12%\n\x0etransaction_id\x18\x02 \x01(\tR\rtransactionId"=\n\x1c'
    b"NotifyUnsubscribeLiteCommand\x12\x1d\n\nlite_topic\x18\x01 \x01(\t"
    b'R\tliteTopic"\xa7\x07\n\x10TelemetryCommand\x127\n\x06status\x18\x01 \x01(\x0b'
    b"2\x1a.apache.rocketmq.v2.StatusH\x01R\x06status\x88\x01\x01\x12:\n\x08set"
    b"tings\x18\x02 \x01(\x0b2\x1c.apache.rocketmq.v2.SettingsH\x00R\x08set"
    b"tings\x12T\n\x12thread_stack_trace\x18\x03 \x01(\x0b2$.apache.rocke"
    b"tmq.v2.ThreadStackTraceH\x00R\x10threadStackTrace\x12]\n\x15v"
    b"erify_message_result\x18\x04 \x01(\x0b2'.apache.rocketmq.v2."
    b"VerifyMessageResultH\x00R\x13verifyMessageResult\x12\x88\x01\n$r"
    b"ecover_orphaned_transaction_command\x18\x05 \x01(\x0b25.apac"
    b"he.rocketmq.v2.RecoverOrphanedTransactionCommand"
    b"H\x00R!recoverOrphanedTransactionCommand\x12z\n print_t"
    b"hread_stack_trace_command\x18\x06 \x01(\x0b20.apache.rocketm"
    b"q.v2.PrintThreadStackTraceCommandH\x00R\x1cprintThread"
    b"StackTraceCommand\x12`\n\x16verify_message_command\x18\x07 \x01("
    b"\x0b2(.apache.rocketmq.v2.VerifyMessageCommandH\x00R\x14v"
    b"erifyMessageCommand\x12o\n\x1breconnect_endpoints_comma"
    b"nd\x18\x08 \x01(\x0b2-.apache.rocketmq.v2.ReconnectEndpoints"
    b"CommandH\x00R\x19reconnectEndpointsCommand\x12y\n\x1fnotify_u"
    b"nsubscribe_lite_command\x18\t \x01(\x0b20.apache.rocketmq."
    b"v2.NotifyUnsubscribeLiteCommandH\x00R\x1cnotifyUnsubsc"
    b'ribeLiteCommandB\t\n\x07commandB\t\n\x07_status"c\n\x1eNotifyC'
    b"lientTerminationRequest\x127\n\x05group\x18\x01 \x01(\x0b2\x1c.apache."
    b'rocketmq.v2.ResourceH\x00R\x05group\x88\x01\x01B\x08\n\x06_group"U\n\x1fNo'
    b"tifyClientTerminationResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a."
    b'apache.rocketmq.v2.StatusR\x06status"\x98\x02\n\x1eChangeInvi'
    b"sibleDurationRequest\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.roc"
    b"ketmq.v2.ResourceR\x05group\x122\n\x05topic\x18\x02 \x01(\x0b2\x1c.apache"
    b".rocketmq.v2.ResourceR\x05topic\x12%\n\x0ereceipt_handle\x18\x03"
    b" \x01(\tR\rreceiptHandle\x12H\n\x12invisible_duration\x18\x04 \x01(\x0b2"
    b"\x19.google.protobuf.DurationR\x11invisibleDuration\x12\x1d\n"
    b'\nmessage_id\x18\x05 \x01(\tR\tmessageId"|\n\x1fChangeInvisibleD'
    b"urationResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketm"
    b"q.v2.StatusR\x06status\x12%\n\x0ereceipt_handle\x18\x02 \x01(\tR\rrec"
    b'eiptHandle"\xe6\x02\n\x12PullMessageRequest\x122\n\x05group\x18\x01 \x01(\x0b'
    b"2\x1c.apache.rocketmq.v2.ResourceR\x05group\x12E\n\rmessage"
    b"_queue\x18\x02 \x01(\x0b2 .apache.rocketmq.v2.MessageQueueR\x0c"
    b"messageQueue\x12\x16\n\x06offset\x18\x03 \x01(\x03R\x06offset\x12\x1d\n\nbatch_si"
    b"ze\x18\x04 \x01(\x05R\tbatchSize\x12Q\n\x11filter_expression\x18\x05 \x01(\x0b2$"
    b".apache.rocketmq.v2.FilterExpressionR\x10filterExpr"
    b"ession\x12K\n\x14long_polling_timeout\x18\x06 \x01(\x0b2\x19.google.pr"
    b'otobuf.DurationR\x12longPollingTimeout"\xb2\x01\n\x13PullMess'
    b"ageResponse\x124\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2"
    b".StatusH\x00R\x06status\x127\n\x07message\x18\x02 \x01(\x0b2\x1b.apache.rock"
    b"etmq.v2.MessageH\x00R\x07message\x12!\n\x0bnext_offset\x18\x03 \x01(\x03H"
    b'\x00R\nnextOffsetB\t\n\x07content"\xa8\x01\n\x13UpdateOffsetRequest'
    b"\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05g"
    b"roup\x12E\n\rmessage_queue\x18\x02 \x01(\x0b2 .apache.rocketmq.v2"
    b".MessageQueueR\x0cmessageQueue\x12\x16\n\x06offset\x18\x03 \x01(\x03R\x06off"
    b'set"J\n\x14UpdateOffsetResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.ap'
    b'ache.rocketmq.v2.StatusR\x06status"\x8d\x01\n\x10GetOffsetReq'
    b"uest\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache.rocketmq.v2.Resourc"
    b"eR\x05group\x12E\n\rmessage_queue\x18\x02 \x01(\x0b2 .apache.rocketm"
    b'q.v2.MessageQueueR\x0cmessageQueue"_\n\x11GetOffsetResp'
    b"onse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2.Status"
    b'R\x06status\x12\x16\n\x06offset\x18\x02 \x01(\x03R\x06offset"\xff\x01\n\x12QueryOffset'
    b"Request\x12E\n\rmessage_queue\x18\x01 \x01(\x0b2 .apache.rocketmq"
    b".v2.MessageQueueR\x0cmessageQueue\x12U\n\x13query_offset_p"
    b"olicy\x18\x02 \x01(\x0e2%.apache.rocketmq.v2.QueryOffsetPoli"
    b"cyR\x11queryOffsetPolicy\x12=\n\ttimestamp\x18\x03 \x01(\x0b2\x1a.googl"
    b"e.protobuf.TimestampH\x00R\ttimestamp\x88\x01\x01B\x0c\n\n_timesta"
    b'mp"a\n\x13QueryOffsetResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apac'
    b"he.rocketmq.v2.StatusR\x06status\x12\x16\n\x06offset\x18\x02 \x01(\x03R\x06o"
    b'ffset"o\n\x14RecallMessageRequest\x122\n\x05topic\x18\x01 \x01(\x0b2\x1c.a'
    b"pache.rocketmq.v2.ResourceR\x05topic\x12#\n\rrecall_hand"
    b'le\x18\x02 \x01(\tR\x0crecallHandle"j\n\x15RecallMessageResponse\x12'
    b"2\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq.v2.StatusR\x06sta"
    b'tus\x12\x1d\n\nmessage_id\x18\x02 \x01(\tR\tmessageId"\xf8\x02\n\x1bSyncLiteS'
    b"ubscriptionRequest\x12B\n\x06action\x18\x01 \x01(\x0e2*.apache.rock"
    b"etmq.v2.LiteSubscriptionActionR\x06action\x122\n\x05topic\x18"
    b"\x02 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05topic\x122\n\x05gr"
    b"oup\x18\x03 \x01(\x0b2\x1c.apache.rocketmq.v2.ResourceR\x05group\x12$"
    b"\n\x0elite_topic_set\x18\x04 \x03(\tR\x0cliteTopicSet\x12\x1d\n\x07version\x18"
    b"\x05 \x01(\x03H\x00R\x07version\x88\x01\x01\x12J\n\roffset_option\x18\x06 \x01(\x0b2 .apa"
    b"che.rocketmq.v2.OffsetOptionH\x01R\x0coffsetOption\x88\x01\x01B"
    b'\n\n\x08_versionB\x10\n\x0e_offset_option"R\n\x1cSyncLiteSubscri'
    b"ptionResponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apache.rocketmq."
    b'v2.StatusR\x06status*Y\n\x15TransactionResolution\x12&\n"TR'
    b"ANSACTION_RESOLUTION_UNSPECIFIED\x10\x00\x12\n\n\x06COMMIT\x10\x01\x12\x0c"
    b"\n\x08ROLLBACK\x10\x02*W\n\x11TransactionSource\x12\x16\n\x12SOURCE_UNSP"
    b"ECIFIED\x10\x00\x12\x11\n\rSOURCE_CLIENT\x10\x01\x12\x17\n\x13SOURCE_SERVER_CH"
    b"ECK\x10\x02*W\n\nPermission\x12\x1a\n\x16PERMISSION_UNSPECIFIED\x10\x00\x12"
    b"\x08\n\x04NONE\x10\x01\x12\x08\n\x04READ\x10\x02\x12\t\n\x05WRITE\x10\x03\x12\x0e\n\nREAD_WRITE\x10\x04*;"
    b"\n\nFilterType\x12\x1b\n\x17FILTER_TYPE_UNSPECIFIED\x10\x00\x12\x07\n\x03TAG"
    b"\x10\x01\x12\x07\n\x03SQL\x10\x02*T\n\rAddressScheme\x12\x1e\n\x1aADDRESS_SCHEME_U"
    b"NSPECIFIED\x10\x00\x12\x08\n\x04IPv4\x10\x01\x12\x08\n\x04IPv6\x10\x02\x12\x0f\n\x0bDOMAIN_NAME\x10"
    b"\x03*u\n\x0bMessageType\x12\x1c\n\x18MESSAGE_TYPE_UNSPECIFIED\x10\x00\x12\n"
    b"\n\x06NORMAL\x10\x01\x12\x08\n\x04FIFO\x10\x02\x12\t\n\x05DELAY\x10\x03\x12\x0f\n\x0bTRANSACTION\x10\x04"
    b"\x12\x08\n\x04LITE\x10\x05\x12\x0c\n\x08PRIORITY\x10\x06*G\n\nDigestType\x12\x1b\n\x17DIGEST"
    b"_TYPE_UNSPECIFIED\x10\x00\x12\t\n\x05CRC32\x10\x01\x12\x07\n\x03MD5\x10\x02\x12\x08\n\x04SHA1\x10"
    b"\x03*\xa4\x01\n\nClientType\x12\x1b\n\x17CLIENT_TYPE_UNSPECIFIED\x10\x00\x12\x0c\n"
    b"\x08PRODUCER\x10\x01\x12\x11\n\rPUSH_CONSUMER\x10\x02\x12\x13\n\x0fSIMPLE_CONSUME"
    b"R\x10\x03\x12\x11\n\rPULL_CONSUMER\x10\x04\x12\x16\n\x12LITE_PUSH_CONSUMER\x10\x05\x12\x18"
    b"\n\x14LITE_SIMPLE_CONSUMER\x10\x06*<\n\x08Encoding\x12\x18\n\x14ENCODING"
    b"_UNSPECIFIED\x10\x00\x12\x0c\n\x08IDENTITY\x10\x01\x12\x08\n\x04GZIP\x10\x02*\xa9\x0b\n\x04Code\x12"
    b"\x14\n\x10CODE_UNSPECIFIED\x10\x00\x12\x08\n\x02OK\x10\xa0\x9c\x01\x12\x16\n\x10MULTIPLE_RESU"
    b"LTS\x10\xb0\xea\x01\x12\x11\n\x0bBAD_REQUEST\x10\xc0\xb8\x02\x12\x1a\n\x14ILLEGAL_ACCESS_POI"
    b"NT\x10\xc1\xb8\x02\x12\x13\n\rILLEGAL_TOPIC\x10\xc2\xb8\x02\x12\x1c\n\x16ILLEGAL_CONSUMER_"
    b"GROUP\x10\xc3\xb8\x02\x12\x19\n\x13ILLEGAL_MESSAGE_TAG\x10\xc4\xb8\x02\x12\x19\n\x13ILLEGAL_"
    b'MESSAGE_KEY\x10\xc5\xb8\x02\x12\x1b\n\x15ILLEGAL_MESSAGE_GROUP\x10\xc6\xb8\x02\x12"\n\x1c'
    b"ILLEGAL_MESSAGE_PROPERTY_KEY\x10\xc7\xb8\x02\x12\x1c\n\x16INVALID_TRAN"
    b"SACTION_ID\x10\xc8\xb8\x02\x12\x18\n\x12ILLEGAL_MESSAGE_ID\x10\xc9\xb8\x02\x12\x1f\n\x19ILLE"
    b"GAL_FILTER_EXPRESSION\x10\xca\xb8\x02\x12\x1c\n\x16ILLEGAL_INVISIBLE_T"
    b"IME\x10\xcb\xb8\x02\x12\x1b\n\x15ILLEGAL_DELIVERY_TIME\x10\xcc\xb8\x02\x12\x1c\n\x16INVALID_"
    b"RECEIPT_HANDLE\x10\xcd\xb8\x02\x12)\n#MESSAGE_PROPERTY_CONFLICT_"
    b"WITH_TYPE\x10\xce\xb8\x02\x12\x1e\n\x18UNRECOGNIZED_CLIENT_TYPE\x10\xcf\xb8\x02\x12\x17\n"
    b"\x11MESSAGE_CORRUPTED\x10\xd0\xb8\x02\x12\x18\n\x12CLIENT_ID_REQUIRED\x10\xd1\xb8\x02"
    b"\x12\x1a\n\x14ILLEGAL_POLLING_TIME\x10\xd2\xb8\x02\x12\x14\n\x0eILLEGAL_OFFSET\x10\xd3"
    b"\xb8\x02\x12\x18\n\x12ILLEGAL_LITE_TOPIC\x10\xd4\xb8\x02\x12\x12\n\x0cUNAUTHORIZED\x10\xa4\xb9\x02"
    b"\x12\x16\n\x10PAYMENT_REQUIRED\x10\x88\xba\x02\x12\x0f\n\tFORBIDDEN\x10\xec\xba\x02\x12\x0f\n\tNOT"
    b"_FOUND\x10\xd0\xbb\x02\x12\x17\n\x11MESSAGE_NOT_FOUND\x10\xd1\xbb\x02\x12\x15\n\x0fTOPIC_NOT"
    b"_FOUND\x10\xd2\xbb\x02\x12\x1e\n\x18CONSUMER_GROUP_NOT_FOUND\x10\xd3\xbb\x02\x12\x16\n\x10OF"
    b"FSET_NOT_FOUND\x10\xd4\xbb\x02\x12\x15\n\x0fREQUEST_TIMEOUT\x10\xe0\xbe\x02\x12\x17\n\x11PAY"
    b"LOAD_TOO_LARGE\x10\xd4\xc2\x02\x12\x1c\n\x16MESSAGE_BODY_TOO_LARGE\x10\xd5\xc2\x02"
    b"\x12\x18\n\x12MESSAGE_BODY_EMPTY\x10\xd6\xc2\x02\x12\x19\n\x13PRECONDITION_FAILE"
    b"D\x10\xb0\xce\x02\x12\x17\n\x11TOO_MANY_REQUESTS\x10\x94\xcf\x02\x12\x1f\n\x19LITE_TOPIC_QUO"
    b"TA_EXCEEDED\x10\x95\xcf\x02\x12&\n LITE_SUBSCRIPTION_QUOTA_EXCEE"
    b'DED\x10\x96\xcf\x02\x12%\n\x1fREQUEST_HEADER_FIELDS_TOO_LARGE\x10\xdc\xd0\x02\x12"'
    b"\n\x1cMESSAGE_PROPERTIES_TOO_LARGE\x10\xdd\xd0\x02\x12\x14\n\x0eINTERNAL_E"
    b"RROR\x10\xd0\x86\x03\x12\x1b\n\x15INTERNAL_SERVER_ERROR\x10\xd1\x86\x03\x12\x16\n\x10HA_NOT_"
    b"AVAILABLE\x10\xd2\x86\x03\x12\x15\n\x0fNOT_IMPLEMENTED\x10\xb4\x87\x03\x12\x13\n\rPROXY_TI"
    b"MEOUT\x10\xe0\x89\x03\x12 \n\x1aMASTER_PERSISTENCE_TIMEOUT\x10\xe1\x89\x03\x12\x1f\n\x19S"
    b"LAVE_PERSISTENCE_TIMEOUT\x10\xe2\x89\x03\x12\x11\n\x0bUNSUPPORTED\x10\xc4\x8a\x03\x12"
    b"\x19\n\x13VERSION_UNSUPPORTED\x10\xc5\x8a\x03\x12%\n\x1fVERIFY_FIFO_MESSAG"
    b"E_UNSUPPORTED\x10\xc6\x8a\x03\x12\x1f\n\x19FAILED_TO_CONSUME_MESSAGE\x10\xe0"
    b"\xd4\x03*\xad\x01\n\x08Language\x12\x18\n\x14LANGUAGE_UNSPECIFIED\x10\x00\x12\x08\n\x04JAV"
    b"A\x10\x01\x12\x07\n\x03CPP\x10\x02\x12\x0b\n\x07DOT_NET\x10\x03\x12\n\n\x06GOLANG\x10\x04\x12\x08\n\x04RUST\x10\x05\x12"
    b"\n\n\x06PYTHON\x10\x06\x12\x07\n\x03PHP\x10\x07\x12\x0b\n\x07NODE_JS\x10\x08\x12\x08\n\x04RUBY\x10\t\x12\x0f\n\x0bO"
    b"BJECTIVE_C\x10\n\x12\x08\n\x04DART\x10\x0b\x12\n\n\x06KOTLIN\x10\x0c*d\n\x16LiteSubscr"
    b"iptionAction\x12\x0f\n\x0bPARTIAL_ADD\x10\x00\x12\x12\n\x0ePARTIAL_REMOVE\x10"
    b"\x01\x12\x10\n\x0cCOMPLETE_ADD\x10\x02\x12\x13\n\x0fCOMPLETE_REMOVE\x10\x03*:\n\x11Quer"
    b"yOffsetPolicy\x12\r\n\tBEGINNING\x10\x00\x12\x07\n\x03END\x10\x01\x12\r\n\tTIMESTA"
    b"MP\x10\x022\xaa\x0e\n\x10MessagingService\x12[\n\nQueryRoute\x12%.apache"
    b".rocketmq.v2.QueryRouteRequest\x1a&.apache.rocketmq"
    b".v2.QueryRouteResponse\x12X\n\tHeartbeat\x12$.apache.roc"
    b"ketmq.v2.HeartbeatRequest\x1a%.apache.rocketmq.v2.H"
    b"eartbeatResponse\x12^\n\x0bSendMessage\x12&.apache.rocketm"
    b"q.v2.SendMessageRequest\x1a'.apache.rocketmq.v2.Sen"
    b"dMessageResponse\x12j\n\x0fQueryAssignment\x12*.apache.roc"
    b"ketmq.v2.QueryAssignmentRequest\x1a+.apache.rocketm"
    b"q.v2.QueryAssignmentResponse\x12i\n\x0eReceiveMessage\x12)"
    b".apache.rocketmq.v2.ReceiveMessageRequest\x1a*.apac"
    b"he.rocketmq.v2.ReceiveMessageResponse0\x01\x12[\n\nAckMe"
    b"ssage\x12%.apache.rocketmq.v2.AckMessageRequest\x1a&.a"
    b"pache.rocketmq.v2.AckMessageResponse\x12\x9a\x01\n\x1fForward"
    b"MessageToDeadLetterQueue\x12:.apache.rocketmq.v2.Fo"
    b"rwardMessageToDeadLetterQueueRequest\x1a;.apache.ro"
    b"cketmq.v2.ForwardMessageToDeadLetterQueueRespons"
    b"e\x12`\n\x0bPullMessage\x12&.apache.rocketmq.v2.PullMessag"
    b"eRequest\x1a'.apache.rocketmq.v2.PullMessageRespons"
    b"e0\x01\x12a\n\x0cUpdateOffset\x12'.apache.rocketmq.v2.UpdateO"
    b"ffsetRequest\x1a(.apache.rocketmq.v2.UpdateOffsetRe"
    b"sponse\x12X\n\tGetOffset\x12$.apache.rocketmq.v2.GetOffs"
    b"etRequest\x1a%.apache.rocketmq.v2.GetOffsetResponse"
    b"\x12^\n\x0bQueryOffset\x12&.apache.rocketmq.v2.QueryOffset"
    b"Request\x1a'.apache.rocketmq.v2.QueryOffsetResponse"
    b"\x12g\n\x0eEndTransaction\x12).apache.rocketmq.v2.EndTrans"
    b"actionRequest\x1a*.apache.rocketmq.v2.EndTransactio"
    b"nResponse\x12[\n\tTelemetry\x12$.apache.rocketmq.v2.Tele"
    b"metryCommand\x1a$.apache.rocketmq.v2.TelemetryComma"
    b"nd(\x010\x01\x12\x82\x01\n\x17NotifyClientTermination\x122.apache.rock"
    b"etmq.v2.NotifyClientTerminationRequest\x1a3.apache."
    b"rocketmq.v2.NotifyClientTerminationResponse\x12\x82\x01\n\x17"
    b"ChangeInvisibleDuration\x122.apache.rocketmq.v2.Cha"
    b"ngeInvisibleDurationRequest\x1a3.apache.rocketmq.v2"
    b".ChangeInvisibleDurationResponse\x12d\n\rRecallMessag"
    b"e\x12(.apache.rocketmq.v2.RecallMessageRequest\x1a).ap"
    b"ache.rocketmq.v2.RecallMessageResponse\x12y\n\x14SyncLi"
    b"teSubscription\x12/.apache.rocketmq.v2.SyncLiteSubs"
    b"criptionRequest\x1a0.apache.rocketmq.v2.SyncLiteSub"
    b"scriptionResponseb\x06proto3"
)
_pool = descriptor_pool.DescriptorPool()
for _each in (duration_pb2, timestamp_pb2):
    _pool.AddSerializedFile(_each.DESCRIPTOR.serialized_pb)
_pool.Add(_FILE)
DESCRIPTOR = _pool.FindFileByName(_FILE.name)

TransactionResolution = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["TransactionResolution"])
TransactionSource = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["TransactionSource"])
Permission = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["Permission"])
FilterType = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["FilterType"])
AddressScheme = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["AddressScheme"])
MessageType = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["MessageType"])
DigestType = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["DigestType"])
ClientType = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["ClientType"])
Encoding = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["Encoding"])
Code = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["Code"])
Language = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["Language"])
LiteSubscriptionAction = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["LiteSubscriptionAction"])
QueryOffsetPolicy = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["QueryOffsetPolicy"])
globals().update(
    (name, value.number)
    for enum in DESCRIPTOR.enum_types_by_name.values()
    for name, value in enum.values_by_name.items()
)

FilterExpression = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["FilterExpression"])
RetryPolicy = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["RetryPolicy"])
ExponentialBackoff = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ExponentialBackoff"])
CustomizedBackoff = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["CustomizedBackoff"])
Resource = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Resource"])
SubscriptionEntry = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["SubscriptionEntry"])
Address = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Address"])
Endpoints = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Endpoints"])
Broker = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Broker"])
MessageQueue = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["MessageQueue"])
Digest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Digest"])
SystemProperties = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["SystemProperties"])
DeadLetterQueue = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["DeadLetterQueue"])
Message = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Message"])
Assignment = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Assignment"])
Status = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Status"])
UA = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["UA"])
Settings = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Settings"])
Publishing = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Publishing"])
Subscription = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Subscription"])
Metric = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["Metric"])
OffsetOption = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["OffsetOption"])
QueryRouteRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryRouteRequest"])
QueryRouteResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryRouteResponse"])
SendMessageRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["SendMessageRequest"])
SendResultEntry = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["SendResultEntry"])
SendMessageResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["SendMessageResponse"])
QueryAssignmentRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryAssignmentRequest"])
QueryAssignmentResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryAssignmentResponse"])
ReceiveMessageRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ReceiveMessageRequest"])
ReceiveMessageResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ReceiveMessageResponse"])
AckMessageEntry = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["AckMessageEntry"])
AckMessageRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["AckMessageRequest"])
AckMessageResultEntry = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["AckMessageResultEntry"])
AckMessageResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["AckMessageResponse"])
ForwardMessageToDeadLetterQueueRequest = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["ForwardMessageToDeadLetterQueueRequest"]
)
ForwardMessageToDeadLetterQueueResponse = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["ForwardMessageToDeadLetterQueueResponse"]
)
HeartbeatRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["HeartbeatRequest"])
HeartbeatResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["HeartbeatResponse"])
EndTransactionRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["EndTransactionRequest"])
EndTransactionResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["EndTransactionResponse"])
PrintThreadStackTraceCommand = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["PrintThreadStackTraceCommand"]
)
ReconnectEndpointsCommand = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["ReconnectEndpointsCommand"]
)
ThreadStackTrace = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ThreadStackTrace"])
VerifyMessageCommand = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["VerifyMessageCommand"])
VerifyMessageResult = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["VerifyMessageResult"])
RecoverOrphanedTransactionCommand = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["RecoverOrphanedTransactionCommand"]
)
NotifyUnsubscribeLiteCommand = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["NotifyUnsubscribeLiteCommand"]
)
TelemetryCommand = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["TelemetryCommand"])
NotifyClientTerminationRequest = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["NotifyClientTerminationRequest"]
)
NotifyClientTerminationResponse = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["NotifyClientTerminationResponse"]
)
ChangeInvisibleDurationRequest = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["ChangeInvisibleDurationRequest"]
)
ChangeInvisibleDurationResponse = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["ChangeInvisibleDurationResponse"]
)
PullMessageRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["PullMessageRequest"])
PullMessageResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["PullMessageResponse"])
UpdateOffsetRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["UpdateOffsetRequest"])
UpdateOffsetResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["UpdateOffsetResponse"])
GetOffsetRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["GetOffsetRequest"])
GetOffsetResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["GetOffsetResponse"])
QueryOffsetRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryOffsetRequest"])
QueryOffsetResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["QueryOffsetResponse"])
RecallMessageRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["RecallMessageRequest"])
RecallMessageResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["RecallMessageResponse"])
SyncLiteSubscriptionRequest = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["SyncLiteSubscriptionRequest"]
)
SyncLiteSubscriptionResponse = message_factory.GetMessageClass(
    DESCRIPTOR.message_types_by_name["SyncLiteSubscriptionResponse"]
)
