package grpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"vpp-route-agent/internal/route"
)

// What clients of Ligato and Contiv send, byte for byte, and what they are answered. The files say
// which client each recording is of. After a call comes the request in hex, then the answer: its
// code, and the error's text, or the response in JSON, or nothing where any will do.
func TestRecordedClients(t *testing.T) {
	files, err := filepath.Glob("testdata/clients/*.calls")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replay(t, file) })
	}
}

// call is one of a recording.
type call struct {
	line           int // of the file
	method         string
	request        []byte
	code, response string // "" where the response may be any
}

func replay(t *testing.T, file string) {
	settings, calls := readCalls(t, file)
	s := serve(t)
	s.fib.set(func() {
		s.fib.links = append(s.fib.links, route.Interface{Name: "loop0", Up: true})
	})
	conn, err := grpc.NewClient(s.conn.Target(), grpc.WithUserAgent(settings["user-agent"]),
		grpc.WithAuthority(settings["authority"]), grpc.WithDefaultCallOptions(
			grpc.ForceCodec(bytesCodec{})),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range calls {
		method := methodOf(t, c.method)
		response, err := c.do(s.ctx, conn, method)
		text, want := status.Convert(err).Message(), c.response
		if err == nil {
			text, want = inJSON(t, response, method), compact(t, want)
		}
		if got := status.Code(err).String(); got != c.code || want != "" && text != want {
			t.Errorf("%s:%d: %s\n got %s %s\nwant %s %s", file, c.line, c.method, got, text,
				c.code, want)
		}
	}
}

const answerGoesOn = "  " // begins a line

// readCalls reads a recording: lines "NAME: VALUE", then calls.
func readCalls(t *testing.T, file string) (settings map[string]string, calls []call) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	settings = map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case lines.Text() == "" || kind == "#":
		case kind == "call":
			calls = append(calls, call{line: n, method: rest})
		case len(calls) == 0 && strings.HasSuffix(kind, ":"):
			settings[strings.TrimSuffix(kind, ":")] = rest
		case len(calls) > 0 && kind == "answer":
			last := &calls[len(calls)-1]
			last.code, last.response, _ = strings.Cut(rest, " ")
		case len(calls) > 0 && strings.HasPrefix(lines.Text(), answerGoesOn):
			last := &calls[len(calls)-1]
			last.response = strings.TrimSpace(last.response + " " + strings.TrimSpace(lines.Text()))
		case len(calls) > 0 && rest == "":
			last, more := &calls[len(calls)-1], []byte(nil)
			if more, err = hex.DecodeString(kind); err != nil {
				t.Fatalf("%s:%d: %v", file, n, err)
			}
			last.request = append(last.request, more...)
		default:
			t.Fatalf("%s:%d: %q", file, n, lines.Text())
		}
	}
	if err := lines.Err(); err != nil || len(calls) == 0 {
		t.Fatalf("%s: %d calls, %v", file, len(calls), err)
	}
	return settings, calls
}

func methodOf(t *testing.T, path string) protoreflect.MethodDescriptor {
	t.Helper()
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return d.(protoreflect.MethodDescriptor)
}

// do returns the first response.
func (c call) do(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) (
	response []byte, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends a stream
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer()},
		c.method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(c.request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return response, stream.RecvMsg(&response)
}

// inJSON returns a message on one line, without the spaces that protojson varies.
func inJSON(t *testing.T, message []byte, m protoreflect.MethodDescriptor) string {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	out := kind.New().Interface()
	if err := proto.Unmarshal(message, out); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, string(text))
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); text != "" && err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out.String()
}

// bytesCodec leaves messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                    { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
