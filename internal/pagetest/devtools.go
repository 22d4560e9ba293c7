package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// devtools speaks Chromium's DevTools protocol over the pipe of --remote-debugging-pipe: JSON, each
// message with a zero byte behind it. Its methods are safe for concurrent use.
type devtools struct {
	to   io.WriteCloser
	done chan struct{} // closed when Chromium has closed its end

	writing sync.Mutex // is held while a message is written

	mu      sync.Mutex // guards the following, and is not held while Chromium is waited for
	last    int        // number of a call
	waiting map[int]chan<- message
	heard   map[string]func(message) // what is told of events, by session
	err     error                    // why nothing more comes
}

// message is a call, an answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
		Data    string `json:"data"`
	} `json:"error,omitempty"`
}

// object is what parameters of calls are made of.
type object map[string]any

func newDevtools(from io.Reader, to io.WriteCloser) *devtools {
	d := &devtools{
		to: to, done: make(chan struct{}),
		waiting: map[int]chan<- message{}, heard: map[string]func(message){},
	}
	go d.listen(from)
	return d
}

func (d *devtools) listen(from io.Reader) {
	defer close(d.done)
	in := bufio.NewReader(from)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			d.end(fmt.Errorf("the end of Chromium: %w", err))
			return
		}
		var m message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			d.end(fmt.Errorf("a message of Chromium: %w", err))
			return
		}
		d.mu.Lock()
		answer, heard := d.waiting[m.ID], d.heard[m.Session]
		delete(d.waiting, m.ID)
		d.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m // has room
		case m.ID == 0 && heard != nil:
			heard(m)
		}
	}
}

func (d *devtools) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	for _, answer := range d.waiting {
		close(answer)
	}
	d.waiting = nil
}

// hear has f called for each event of a session, in order. f must not call.
func (d *devtools) hear(session string, f func(message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard[session] = f
}

// call has Chromium do something, in a session or, with "", in the browser; out may be nil.
func (d *devtools) call(
	ctx context.Context, session, method string, params object, out any,
) error {
	answer, err := d.send(session, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, errors.New("the browser has ended"))
		case m.Error != nil:
			return fmt.Errorf("%s: %s %s", method, m.Error.Message, m.Error.Data)
		case out == nil:
			return nil
		}
		return json.Unmarshal(m.Result, out)
	}
}

func (d *devtools) send(session, method string, params object) (<-chan message, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	id, err := d.expect(answer)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: raw})
	if err != nil {
		return nil, err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	_, err = d.to.Write(append(text, 0))
	return answer, err
}

// expect numbers a call.
func (d *devtools) expect(answer chan<- message) (id int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	d.last++
	d.waiting[d.last] = answer
	return d.last, nil
}
