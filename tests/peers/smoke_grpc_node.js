#!/usr/bin/env node
// The official gRPC client for Node against a proxy; prints one JSON line for each scenario.
// usage: node smoke_grpc_node.js HOST:PORT TOPIC; the topic takes ordinary messages.
// SMOKE_AWAIT_GROUP is a command that waits until the group and topic that follow have begun.
'use strict';
const { promisify } = require('node:util');
const exec = promisify(require('node:child_process').exec);
const mq = require('rocketmq-client-nodejs');
const [ , , endpoints, topic ] = process.argv;
const COUNT = 10;
const logger = { debug() {}, info() {}, warn() {}, error() {}, write() {} };
const tell = (name, ok, detail) => console.log(JSON.stringify({ name, ok, ...detail }));
const sleep = ms => new Promise(done => setTimeout(done, ms));
process.on('unhandledRejection', error => tell('unhandled', false, { error: String(error && error.message || error) }));
setTimeout(() => { tell('limit', false, { error: 'not done in time' }); process.exit(1); }, 200000).unref();

const { SMOKE_ACCESS_KEY: accessKey, SMOKE_SECRET_KEY: accessSecret } = process.env;
const keys = accessKey ? { sessionCredentials: { accessKey, accessSecret } } : {};
const options = (tag, more) => ({ endpoints, namespace: '', subscriptions: new Map().set(topic, tag), logger, ...keys, ...more });

async function send(producer, tag) {
  const ids = new Set();
  for (let number = 0; number < COUNT; number++) {
    const body = Buffer.from(`node ${number}`);
    ids.add((await producer.send({ topic, tag, keys: [ `k${number}` ], body })).messageId);
  }
  return ids.size;
}

async function simple(producer) {
  const seen = new Map();
  const consumer = new mq.SimpleConsumer(options('simple', { consumerGroup: 'GID_node_simple', awaitDuration: 5000 }));
  await consumer.startup();
  await consumer.receive(1, 15000);
  const sent = await send(producer, 'simple');
  const end = Date.now() + 90000;
  while (Date.now() < end && seen.size < sent) {
    for (const message of await consumer.receive(20, 60000)) {
      seen.set(message.messageId, (seen.get(message.messageId) || 0) + 1);
      await consumer.ack(message);
    }
  }
  await consumer.shutdown();
  const repeated = [ ...seen.values() ].filter(count => count > 1).length;
  tell('simple', sent === COUNT && seen.size === COUNT && !repeated, { sent, seen: seen.size, repeated });
}

async function push(producer) {
  const seen = new Map();
  const messageListener = {
    async consume(message) {
      const times = (seen.get(message.messageId) || 0) + 1;
      seen.set(message.messageId, times);
      const fails = message.body.toString() === 'node 3' && times === 1;
      return fails ? mq.ConsumeResult.FAILURE : mq.ConsumeResult.SUCCESS;
    },
  };
  const consumer = new mq.PushConsumer(options('push', { consumerGroup: 'GID_node_push', messageListener }));
  await consumer.startup();
  await exec(`${process.env.SMOKE_AWAIT_GROUP} GID_node_push ${topic}`);
  const sent = await send(producer, 'push');
  const end = Date.now() + 90000;
  const total = () => [ ...seen.values() ].reduce((sum, count) => sum + count, 0);
  while (Date.now() < end && total() < sent + 1) await sleep(50);
  await consumer.shutdown();
  const good = sent === COUNT && seen.size === COUNT && total() === COUNT + 1;
  tell('push', good, { sent, seen: seen.size, total: total() });
}

(async () => {
  const producer = new mq.Producer({ endpoints, namespace: '', topics: [ topic ], logger, ...keys });
  await producer.startup();
  const failed = name => error => tell(name, false, { error: String(error && error.stack || error) });
  await Promise.all([ simple(producer).catch(failed('simple')), push(producer).catch(failed('push')) ]);
  await producer.shutdown();
  process.exit(0);
})().catch(error => { tell('start', false, { error: String(error && error.stack || error) }); process.exit(1); });
