// Command proto generates the Go code of the .proto files below this folder, beside them. It needs
// no protoc and no network: the compiler and the plugins are in go.mod. `make proto` runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// here is this folder, seen from the top of the repository and as part of go_package.
const here = "internal/external/proto"

func main() {
	files, err := generate(context.Background(), here)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(here, name), content, 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

// generate returns the generated files of the .proto files below dir, by path below dir.
func generate(ctx context.Context, dir string) (map[string][]byte, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".proto") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(
			&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	compiled, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names, Parameter: proto.String("module=vpp-route-agent/" + here),
	}
	for _, f := range compiled {
		request.ProtoFile = addWithImports(request.ProtoFile, f)
	}
	files := map[string][]byte{}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(ctx, plugin, request, files); err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return files, nil
}

// addWithImports adds f after what it imports, as a plugin wants it.
func addWithImports(to []*descriptorpb.FileDescriptorProto,
	f protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	known := func(d *descriptorpb.FileDescriptorProto) bool { return d.GetName() == f.Path() }
	if slices.ContainsFunc(to, known) {
		return to
	}
	for i := range f.Imports().Len() {
		to = addWithImports(to, f.Imports().Get(i).FileDescriptor)
	}
	return append(to, protodesc.ToFileDescriptorProto(f))
}

// run has a plugin answer request, and adds the files that it generates.
func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest,
	files map[string][]byte) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "go", "tool", plugin)
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.File {
		files[f.GetName()] = []byte(f.GetContent())
	}
	return nil
}
