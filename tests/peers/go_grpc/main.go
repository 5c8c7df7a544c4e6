// The official gRPC client for Go as it is shipped, TLS on, against a proxy.
//
//	go-grpc-smoke HOST:PORT [SCENARIO ...]      one JSON line for each scenario {name, ok, detail}
//
// Topics: go (NORMAL), gofifo (FIFO), godelay (DELAY), gotran (TRANSACTION); GID_gofifo consumes in order.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	limit   = 120 * time.Second
	polling = 5 * time.Second
	hidden  = 60 * time.Second
)

var endpoint string

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func startProducer(topic string, options ...rmq.ProducerOption) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(config(""), append(options, rmq.WithTopics(topic))...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

// startConsumer returns a consumer whose group has begun: what is sent from then on comes.
func startConsumer(group, topic string, filter *rmq.FilterExpression) (rmq.SimpleConsumer, error) {
	consumer, err := rmq.NewSimpleConsumer(config(group), rmq.WithAwaitDuration(polling),
		rmq.WithSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	if err != nil {
		return nil, err
	}
	if err = consumer.Start(); err != nil {
		return nil, err
	}
	_, err = receive(consumer)
	return consumer, err
}

// receive returns what is there; that nothing is there is no error.
func receive(consumer rmq.SimpleConsumer) ([]*rmq.MessageView, error) {
	found, err := consumer.Receive(context.Background(), 16, hidden)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == 40401 {
		return nil, nil
	}
	return found, err
}

// collect receives and acknowledges until it has count messages, or the time is over.
func collect(consumer rmq.SimpleConsumer, count int, within time.Duration) ([]*rmq.MessageView, error) {
	var all []*rmq.MessageView
	for end := time.Now().Add(within); len(all) < count && time.Now().Before(end); {
		found, err := receive(consumer)
		if err != nil {
			return all, err
		}
		for _, message := range found {
			if err = consumer.Ack(context.Background(), message); err != nil {
				return all, err
			}
		}
		all = append(all, found...)
	}
	return all, nil
}

func bodies(messages []*rmq.MessageView) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.GetBody()))
	}
	return found
}

func message(topic, body, tag string) *rmq.Message {
	made := &rmq.Message{Topic: topic, Body: []byte(body)}
	made.SetTag(tag)
	made.SetKeys("key-" + body)
	made.AddProperty("number", body)
	return made
}

func same(what string, got, wanted []string) error {
	if !slices.Equal(got, wanted) {
		return fmt.Errorf("%s: %v instead of %v", what, got, wanted)
	}
	return nil
}

// normal: tags, keys, properties; acknowledgements; one message has its time shortened and comes again.
func normal() error {
	producer, err := startProducer("go")
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	consumer, err := startConsumer("GID_go", "go", rmq.NewFilterExpression("wanted"))
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	ids := map[string]bool{}
	for number := 0; number < 10; number++ {
		receipts, err := producer.Send(context.Background(), message("go", fmt.Sprint(number), "wanted"))
		if err != nil {
			return err
		}
		ids[receipts[0].MessageID] = true
	}
	if _, err = producer.Send(context.Background(), message("go", "other", "other")); err != nil {
		return err
	}
	var all []*rmq.MessageView
	shortened := ""
	for end := time.Now().Add(limit); len(all) < 10 && time.Now().Before(end); {
		found, err := receive(consumer)
		if err != nil {
			return err
		}
		for _, each := range found {
			if shortened == "" {
				shortened = each.GetMessageId()
				first := each.GetReceiptHandle()
				if err = consumer.ChangeInvisibleDuration(each, 2*time.Second); err != nil {
					return err
				}
				if each.GetReceiptHandle() == first {
					return fmt.Errorf("the time was changed and the handle was not")
				}
				continue
			}
			if err = consumer.Ack(context.Background(), each); err != nil {
				return err
			}
			body := string(each.GetBody())
			if each.GetProperties()["number"] != body || *each.GetTag() != "wanted" || !slices.Contains(each.GetKeys(), "key-"+body) {
				return fmt.Errorf("%s came with other properties than it was sent with", body)
			}
			if again := each.GetDeliveryAttempt() > 1; again != (each.GetMessageId() == shortened) {
				return fmt.Errorf("%s came for the %d. time", body, each.GetDeliveryAttempt())
			}
			if !ids[each.GetMessageId()] {
				return fmt.Errorf("%s has another id than it was sent with", body)
			}
			all = append(all, each)
		}
	}
	got := bodies(all)
	slices.Sort(got)
	if err = same("received", got, strings.Split("0123456789", "")); err != nil {
		return err
	}
	rest, err := receive(consumer)
	if err != nil {
		return err
	}
	return same("received again", bodies(rest), []string{})
}

// sql: a condition over properties chooses.
func sql() error {
	producer, err := startProducer("go")
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	condition := rmq.NewFilterExpressionWithType("TAGS = 'sql' AND number BETWEEN 3 AND 5", rmq.SQL92)
	consumer, err := startConsumer("GID_go_sql", "go", condition)
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	for number := 0; number < 10; number++ {
		if _, err := producer.Send(context.Background(), message("go", fmt.Sprint(number), "sql")); err != nil {
			return err
		}
	}
	found, err := collect(consumer, 3, limit)
	if err != nil {
		return err
	}
	got := bodies(found)
	slices.Sort(got)
	return same("received", got, []string{"3", "4", "5"})
}

// fifo: messages of each group in order.
func fifo() error {
	producer, err := startProducer("gofifo")
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	consumer, err := startConsumer("GID_gofifo", "gofifo", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	for number := 0; number < 5; number++ {
		for _, group := range []string{"a", "b"} {
			made := message("gofifo", fmt.Sprintf("%s%d", group, number), "tag")
			made.SetMessageGroup(group)
			if _, err := producer.Send(context.Background(), made); err != nil {
				return err
			}
		}
	}
	found, err := collect(consumer, 10, limit)
	if err != nil {
		return err
	}
	for _, group := range []string{"a", "b"} {
		var got []string
		for _, each := range found {
			if *each.GetMessageGroup() == group {
				got = append(got, string(each.GetBody()))
			}
		}
		if err = same("group "+group, got, []string{group + "0", group + "1", group + "2", group + "3", group + "4"}); err != nil {
			return err
		}
	}
	return nil
}

// delay: a delayed message comes at its time.
func delay() error {
	producer, err := startProducer("godelay")
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	consumer, err := startConsumer("GID_godelay", "godelay", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	due := time.Now().Add(7 * time.Second)
	made := message("godelay", "later", "tag")
	made.SetDelayTimestamp(due)
	if _, err = producer.Send(context.Background(), made); err != nil {
		return err
	}
	found, err := collect(consumer, 1, limit)
	if err != nil {
		return err
	}
	if early := time.Until(due); early > time.Second {
		return fmt.Errorf("it came %v before its time", early)
	}
	return same("received", bodies(found), []string{"later"})
}

// transaction: what was committed, at once or when the broker asked, and nothing else.
func transaction() error {
	var lock sync.Mutex
	var asked []string
	check := func(view *rmq.MessageView) rmq.TransactionResolution {
		lock.Lock()
		defer lock.Unlock()
		body := string(view.GetBody())
		// On a slow machine the others are asked about, too, before their decision is there.
		if strings.HasPrefix(body, "asked") && !slices.Contains(asked, body) {
			asked = append(asked, body)
		}
		if body == "asked-yes" || body == "committed" {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}
	askedFor := func() []string {
		lock.Lock()
		defer lock.Unlock()
		return slices.Sorted(slices.Values(asked))
	}
	producer, err := startProducer("gotran", rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	consumer, err := startConsumer("GID_gotran", "gotran", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	for _, name := range []string{"committed", "rolled-back", "asked-yes", "asked-no"} {
		begun := producer.BeginTransaction()
		if _, err = producer.SendWithTransaction(context.Background(), message("gotran", name, "tag"), begun); err != nil {
			return err
		}
		switch name {
		case "committed":
			err = begun.Commit()
		case "rolled-back":
			err = begun.RollBack()
		}
		if err != nil {
			return err
		}
	}
	found, err := collect(consumer, 2, limit)
	if err != nil {
		return err
	}
	for end := time.Now().Add(limit); len(askedFor()) < 2 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) // the one to be rolled back may be asked about last
	}
	if err = same("asked about", askedFor(), []string{"asked-no", "asked-yes"}); err != nil {
		return err
	}
	rest, err := receive(consumer)
	if err != nil {
		return err
	}
	got := bodies(append(found, rest...))
	slices.Sort(got)
	return same("received", got, []string{"asked-yes", "committed"})
}

func main() {
	scenarios := map[string]func() error{
		"normal": normal, "sql": sql, "fifo": fifo, "delay": delay, "transaction": transaction,
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go-grpc-smoke HOST:PORT [SCENARIO ...]")
		os.Exit(2)
	}
	endpoint = os.Args[1]
	names := os.Args[2:]
	if len(names) == 0 {
		for name := range scenarios {
			names = append(names, name)
		}
	}
	// The client logs into the home folder unless it is told otherwise, and reads where only when it is told to.
	os.Setenv("mq.consoleAppender.enabled", "true")
	os.Setenv("rocketmq.client.logLevel", "error")
	rmq.ResetLogger()
	type line struct {
		Name   string `json:"name"`
		Ok     bool   `json:"ok"`
		Detail string `json:"detail"`
	}
	lines := make(chan line)
	for _, name := range names {
		go func() {
			told := line{Name: name, Ok: true}
			play, known := scenarios[name]
			if !known {
				told = line{Name: name, Detail: "no such scenario"}
			} else if err := play(); err != nil {
				told = line{Name: name, Detail: err.Error()}
			}
			lines <- told
		}()
	}
	failed := false
	for range names {
		told := <-lines
		failed = failed || !told.Ok
		text, _ := json.Marshal(told)
		fmt.Println(string(text))
	}
	if failed {
		os.Exit(1)
	}
}
