package vpp

import "testing"

// The reader pauses while many replies are awaited: it must learn when they no longer are.
func TestNobodyAwaitsRepliesOfAnEndedStream(t *testing.T) {
	fresh := func() *stream {
		s := &stream{conn: newConn(nil, 0), replyID: 7, wake: make(chan struct{}, 1)}
		s.number = s.conn.open(s.reply)
		return s
	}
	awaits := func(s *stream, want int64) {
		t.Helper()
		if got := s.conn.awaited.Load(); got != want {
			t.Errorf("%d replies awaited instead of %d", got, want)
		}
	}
	reply := make([]byte, replyPrefix+8)

	s := fresh()
	awaits(s, 0)
	if _, enough, _ := s.take(1000); enough {
		t.Error("1000 replies came of themselves")
	}
	awaits(s, 1000)
	for n := range uint32(1000) {
		s.reply(n&seqMask, s.replyID, reply)
	}
	awaits(s, 0)
	s.reply(1000, s.replyID, reply) // more than is waited for
	awaits(s, 0)

	s = fresh()
	s.take(1000)
	s.end()
	awaits(s, 0)
	s.reply(0, s.replyID, reply) // it was on its way
	awaits(s, 0)

	s = fresh()
	s.take(1000)
	s.reply(1, s.replyID, reply) // out of order
	awaits(s, 0)
}
