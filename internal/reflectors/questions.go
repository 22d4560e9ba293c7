package reflectors

import (
	"context"
	"fmt"
	"strings"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
)

const (
	// mostQuestions are answered at a time, in the order of their keys, which bounds what an agent
	// reads and writes.
	mostQuestions = 16
	// retryAnswer is when an answer is tried again that could not be found.
	retryAnswer = time.Second
)

// take makes these the questions. An answer goes with its question.
func (p *Publisher) take(all []etcd.Request) {
	asked := map[string]bool{}
	for _, r := range all {
		asked[r.Key] = true
	}
	p.change(func() {
		p.questions = all
		for key := range p.answered {
			if !asked[key] {
				delete(p.answered, key)
				delete(p.keys, p.answerKey(key))
			}
		}
	})
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

func (p *Publisher) answerKey(question string) string {
	return reflector.AnswerKey(p.node, reflector.QuestionID(question))
}

// answer answers questions until ctx ends, each once for each time that it is written.
func (p *Publisher) answer(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.asked:
		case <-retry.C:
		}
		for r, ok := p.next(); ok; r, ok = p.next() {
			if err := p.answerTo(ctx, r); err != nil {
				if ctx.Err() == nil {
					p.log.Debug("a question is not answered yet", "key", r.Key, "err", err)
				}
				retry.Reset(retryAnswer)
				break
			}
		}
	}
}

// next returns a question that is not answered.
func (p *Publisher) next() (etcd.Request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.questions {
		if p.answered[r.Key] != r.Revision {
			return r, true
		}
	}
	return etcd.Request{}, false
}

// answerTo answers a question. One that cannot be understood is named in the log, and has no
// answer.
func (p *Publisher) answerTo(ctx context.Context, r etcd.Request) error {
	var a reflector.Answer
	q, err := reflector.DecodeQuestion(r.Value)
	if err == nil && reflector.QuestionID(r.Key) == "" {
		err = fmt.Errorf("%q is no ID", strings.TrimPrefix(r.Key, reflector.QuestionsPrefix))
	}
	bad := err != nil
	if bad {
		p.log.Warn("a question cannot be answered", "key", r.Key, "err", err)
	} else if a, err = p.find(ctx, q); err != nil {
		return err
	}
	a.Revision = r.Revision
	p.change(func() {
		for _, now := range p.questions {
			if now.Key != r.Key || now.Revision != r.Revision { // it was taken back, or asked again
				continue
			}
			p.answered[r.Key] = r.Revision
			if bad {
				delete(p.keys, p.answerKey(r.Key))
			} else {
				p.keys[p.answerKey(r.Key)] = string(a.Encode())
			}
		}
	})
	return nil
}
