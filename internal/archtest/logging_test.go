package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// quietPackages have loggers, and are no part of the agent's or the controller's log.
var quietPackages = map[string]bool{"internal/bench": true, "internal/bgpfuzz": true,
	"internal/chaos": true, "internal/demo": true, "internal/lab": true, "internal/netlab": true,
	"internal/testcluster": true, "internal/testlog": true, "vpp/vpptest": true}

// logCalls are methods of slog.Logger, with the number of arguments before the attributes, and
// those of our own that hand attributes on to them.
var logCalls = map[string]int{"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "drop": 1}

// handOn are the functions whose attributes are a parameter: their callers are in logCalls, or
// are GoBGP, whose fields are its own.
var handOn = map[string]bool{"bgp/gobgp drop": true, "bgp/gobgp write": true}

var attrs = map[string]bool{"Any": true, "Bool": true, "Duration": true, "Float64": true,
	"Group": true, "Int": true, "Int64": true, "String": true, "Time": true, "Uint64": true}

// TestLogFieldsAreDocumented compares the names of attributes in the code with docs/logging.md.
func TestLogFieldsAreDocumented(t *testing.T) {
	used := map[string]string{"time": "slog", "level": "slog", "msg": "slog"}
	calls := 0
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if quietPackages[name] || strings.HasPrefix(name, "third_party") {
			continue
		}
		for _, f := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || handOn[name+" "+fn.Name.Name] {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					for _, arg := range attributes(call) {
						calls++
						at := fset.Position(arg.Pos()).String()
						if key, ok := literal(arg); ok {
							used[key] = at
						} else {
							t.Errorf("%s: the name of an attribute is not written there", at)
						}
					}
					return true
				})
			}
		}
	}
	if calls < 100 {
		t.Fatalf("only %d attributes were found", calls)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "logging.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(page), "\n## Fields\n")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(
		fields, -1) {
		if documented[m[1]] {
			t.Errorf("docs/logging.md has %s twice", m[1])
		}
		documented[m[1]] = true
	}
	for key, at := range used {
		if !documented[key] {
			t.Errorf("%s: docs/logging.md does not have the field %s", at, key)
		}
	}
	for key := range documented {
		if used[key] == "" {
			t.Errorf("docs/logging.md has %s, which no line has", key)
		}
	}
}

// attributes returns the names that a call gives to a logger, which is called log or Log; nil for
// another call. Of a slog.Attr it is the first argument.
func attributes(call *ast.CallExpr) (names []ast.Expr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	from, isLog := logCalls[method.Sel.Name]
	if on, ok := method.X.(*ast.Ident); ok && on.Name == "slog" &&
		attrs[method.Sel.Name] {
		return call.Args[:1] // slog.Int and the like
	}
	if !isLog || !isLogger(method.X) && method.Sel.Name != "drop" {
		return nil
	}
	for i := from; i+1 < len(call.Args); i += 2 {
		names = append(names, call.Args[i])
	}
	return names
}

func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	case *ast.CallExpr: // log.With(…).Info(…), slog.New(…).With(…)
		method, ok := x.Fun.(*ast.SelectorExpr)
		return ok && (method.Sel.Name == "With" || method.Sel.Name == "New")
	}
	return false
}

func literal(x ast.Expr) (string, bool) {
	l, ok := x.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}
