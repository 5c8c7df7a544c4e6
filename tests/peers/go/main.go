// Smoke of the real Go client against any name server: send and push consume, ordered consume, delay, timer, transaction.
// The client has no names for timer messages, which are plain properties, and neither recall nor pop.
//
//	go-smoke NAMESRV [SCENARIO ...]      one JSON line per scenario {name, ok, detail, ms}; exit 1 when one failed
//
// With SMOKE_ACCESS_KEY and SMOKE_SECRET_KEY it signs; the admin client signs no request to create a topic, so SMOKE_TOPIC
// names one that is there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv string
	run     = fmt.Sprint(time.Now().UnixMilli() % 1e9)
	serial  atomic.Int64
	keys    = primitive.Credentials{AccessKey: os.Getenv("SMOKE_ACCESS_KEY"), SecretKey: os.Getenv("SMOKE_SECRET_KEY")}
)

// await polls until the condition holds, or says what it waited for.
func await(what string, limit time.Duration, holds func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return nil
		}
	}
	return fmt.Errorf("not within %v: %s", limit, what)
}

func instance() string { return fmt.Sprintf("go%s_%d", run, serial.Add(1)) }

func newProducer(group string) (rocketmq.Producer, error) {
	options := []producer.Option{producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group),
		producer.WithInstanceName(instance()), producer.WithRetry(2), producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithQueueSelector(producer.NewHashQueueSelector())}
	if !keys.IsEmpty() {
		options = append(options, producer.WithCredentials(keys))
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// seen collects what a consumer got, in order of arrival.
type seen struct {
	sync.Mutex
	bodies []string
	at     []time.Time
}

func (s *seen) count() int { s.Lock(); defer s.Unlock(); return len(s.bodies) }

func (s *seen) has(body string) bool {
	s.Lock()
	defer s.Unlock()
	return slices.Contains(s.bodies, body)
}

func consume(group, topic string, ordered bool, s *seen) (rocketmq.PushConsumer, error) {
	options := []consumer.Option{consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group),
		consumer.WithInstance(instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(ordered)}
	if !keys.IsEmpty() {
		options = append(options, consumer.WithCredentials(keys))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.Lock()
		defer s.Unlock()
		for _, m := range messages {
			s.bodies = append(s.bodies, string(m.Body))
			s.at = append(s.at, time.Now())
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start()
}

func createTopic(topic string) error {
	options := []admin.AdminOption{admin.WithResolver(primitive.NewPassthroughResolver([]string{namesrv}))}
	if !keys.IsEmpty() {
		options = append(options, admin.WithCredentials(keys))
	}
	a, err := admin.NewAdmin(options...)
	if err != nil {
		return err
	}
	defer a.Close()
	broker := os.Getenv("BROKER_ADDR") // the Go admin asks one broker; without it the first send creates the topic
	if broker == "" {
		return nil
	}
	return a.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker))
}

func send(p rocketmq.Producer, m *primitive.Message) error {
	r, err := p.SendSync(context.Background(), m)
	if err == nil && r.Status != primitive.SendOK {
		err = fmt.Errorf("send status %v", r.Status)
	}
	return err
}

func pushConsume(topic, group string) (string, error) {
	p, err := newProducer(group + "p")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	for i := 0; i < 20; i++ {
		if err := send(p, primitive.NewMessage(topic, []byte(fmt.Sprint(i))).WithKeys([]string{fmt.Sprint("k", i)})); err != nil {
			return "", err
		}
	}
	s := &seen{}
	c, err := consume(group, topic, false, s)
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	if err := await("20 messages", 30*time.Second, func() bool { return s.count() >= 20 }); err != nil {
		return "", err
	}
	return "20 sent and consumed", nil
}

func orderly(topic, group string) (string, error) {
	p, err := newProducer(group + "p")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	for i := 0; i < 30; i++ { // one sharding key: one queue
		if err := send(p, primitive.NewMessage(topic, []byte(fmt.Sprint(i))).WithShardingKey("one")); err != nil {
			return "", err
		}
	}
	s := &seen{}
	c, err := consume(group, topic, true, s)
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	if err := await("30 messages", 50*time.Second, func() bool { return s.count() >= 30 }); err != nil {
		return "", err
	}
	for i, body := range s.bodies {
		if body != fmt.Sprint(i) {
			return "", fmt.Errorf("place %d holds %s", i, body)
		}
	}
	return "30 in order", nil
}

// underway returns a producer and a consumer of a group that has got its first message.
func underway(topic, group string) (rocketmq.Producer, rocketmq.PushConsumer, *seen, error) {
	s := &seen{}
	p, err := newProducer(group + "p")
	if err != nil {
		return nil, nil, nil, err
	}
	if err := send(p, primitive.NewMessage(topic, []byte("now"))); err != nil {
		return nil, nil, nil, err
	}
	c, err := consume(group, topic, false, s)
	if err != nil {
		return nil, nil, nil, err
	}
	err = await("the first message", 30*time.Second, func() bool { return s.count() >= 1 })
	return p, c, s, err
}

func delay(topic, group string) (string, error) {
	p, c, s, err := underway(topic, group)
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	defer c.Shutdown()
	m := primitive.NewMessage(topic, []byte("later"))
	m.WithDelayTimeLevel(2) // 5 s
	start := time.Now()
	if err := send(p, m); err != nil {
		return "", err
	}
	if err := await("the delayed message", 25*time.Second, func() bool { return s.count() >= 2 }); err != nil {
		return "", err
	}
	late := s.at[1].Sub(start)
	if late < 4900*time.Millisecond || late > 12*time.Second {
		return "", fmt.Errorf("level 2 after %v", late)
	}
	return fmt.Sprintf("level 2 after %v", late.Round(time.Millisecond)), nil
}

// timer sends a message by each of the three properties and compares when they come with when they are due.
func timer(topic, group string) (string, error) {
	p, c, s, err := underway(topic, group)
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	defer c.Shutdown()
	due := map[string]time.Time{}
	for _, kind := range []struct {
		property, value string
		after           time.Duration
	}{{"TIMER_DELAY_SEC", "3", 3 * time.Second}, {"TIMER_DELAY_MS", "2500", 2500 * time.Millisecond},
		{"TIMER_DELIVER_MS", fmt.Sprint(time.Now().Add(4 * time.Second).UnixMilli()), 4 * time.Second}} {
		m := primitive.NewMessage(topic, []byte(kind.property))
		m.WithProperty(kind.property, kind.value)
		due[kind.property] = time.Now().Add(kind.after)
		if err := send(p, m); err != nil {
			return "", err
		}
	}
	if err := await("three timer messages", 30*time.Second, func() bool { return s.count() >= 4 }); err != nil {
		return "", err
	}
	s.Lock()
	defer s.Unlock()
	detail := ""
	for i, body := range s.bodies[1:] {
		late := s.at[i+1].Sub(due[body])
		if late < -1100*time.Millisecond || late > 7*time.Second { // the slots of the timer are 1 s wide
			return "", fmt.Errorf("%s: %v late", body, late)
		}
		delete(due, body)
		detail += fmt.Sprintf("%s late by %v; ", body, late.Round(time.Millisecond))
	}
	if len(due) != 0 {
		return "", fmt.Errorf("did not come, but others twice: %v", due)
	}
	return detail, nil
}

// listener leaves "check ..." messages undecided until the broker asks.
type listener struct {
	sync.Mutex
	checked []string
}

func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch string(m.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

// CheckLocalTransaction also answers for a decision whose one-way request was lost.
func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	l.Lock()
	defer l.Unlock()
	l.checked = append(l.checked, string(m.Body))
	if strings.HasSuffix(string(m.Body), "rollback") {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func (l *listener) wasAsked(body string) bool {
	l.Lock()
	defer l.Unlock()
	return slices.Contains(l.checked, body)
}

func transaction(topic, group string) (string, error) {
	l := &listener{}
	options := []producer.Option{producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group + "p"),
		producer.WithInstanceName(instance()), producer.WithSendMsgTimeout(10 * time.Second)}
	if !keys.IsEmpty() {
		options = append(options, producer.WithCredentials(keys))
	}
	p, err := rocketmq.NewTransactionProducer(l, options...)
	if err != nil {
		return "", err
	}
	if err := p.Start(); err != nil {
		return "", err
	}
	defer p.Shutdown()
	for _, body := range []string{"commit", "rollback", "check, commit", "check, rollback"} {
		if _, err := p.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body))); err != nil {
			return "", err
		}
	}
	s := &seen{}
	c, err := consume(group, topic, false, s)
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	if err := await("what is committed", 55*time.Second, func() bool { return s.has("commit") && s.has("check, commit") }); err != nil {
		return "", err
	}
	if err := await("a check of what is rolled back", 20*time.Second, func() bool { return l.wasAsked("check, rollback") }); err != nil {
		return "", err
	}
	time.Sleep(time.Second)
	s.Lock()
	defer s.Unlock()
	l.Lock()
	defer l.Unlock()
	for _, body := range s.bodies {
		if strings.HasSuffix(body, "rollback") {
			return "", fmt.Errorf("a rolled back message came: %s", body)
		}
	}
	return fmt.Sprintf("what was committed came, what was rolled back did not; checks: %v", l.checked), nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go-smoke NAMESRV [SCENARIO ...]")
		os.Exit(2)
	}
	namesrv = os.Args[1]
	rlog.SetLogLevel("error")
	failed := 0
	for _, scenario := range []struct {
		name string
		run  func(topic, group string) (string, error)
	}{{"go_push", pushConsume}, {"go_orderly", orderly}, {"go_delay", delay}, {"go_timer", timer},
		{"go_transaction", transaction}} {
		if wanted := os.Args[2:]; len(wanted) > 0 && !slices.Contains(wanted, scenario.name) {
			continue
		}
		topic, group := "go_"+run+"_"+scenario.name, "gg_"+run+"_"+scenario.name
		if made := os.Getenv("SMOKE_TOPIC"); made != "" {
			topic = made
		}
		start := time.Now()
		err := createTopic(topic)
		detail := ""
		if err == nil {
			detail, err = scenario.run(topic, group)
		}
		if err != nil {
			failed++
			detail = err.Error()
		}
		line, _ := json.Marshal(map[string]any{"name": scenario.name, "ok": err == nil, "detail": detail,
			"ms": time.Since(start).Milliseconds()})
		fmt.Println(string(line))
	}
	if failed > 0 {
		os.Exit(1)
	}
}
