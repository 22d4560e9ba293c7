package main

import (
	"strings"
	"testing"
)

const (
	passing = `{"Action":"attr","Package":"p","Test":"TestA","Key":"part","Value":"BIRD 1.6.8"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	failing = `{"Action":"output","Package":"p","Test":"TestC",` +
		`"Output":"    c_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
`
)

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct {
		in       string
		promised []string
		ok       bool
		says     []string
	}{
		"all passed": {
			passing, []string{"BIRD"}, true,
			[]string{"BIRD 1.6.8", "skipped: p TestB: needs root", "1 passed, 0 failed, 1 skipped"},
		},
		"a failure shows its output": {
			passing + failing, nil, false,
			[]string{"fail p TestC ", "got 1, want 2", "FAILED: p TestC",
				"1 passed, 1 failed, 1 skipped"},
		},
		"a test that has not ended": {
			passing +
				`{"Action":"output","Package":"p","Test":"TestD",` +
				`"Output":"panic: test timed out after 10m0s\n"}
{"Action":"output","Package":"pq","Test":"TestE","Output":"=== RUN   TestE\n"}
{"Action":"fail","Package":"p","Elapsed":600}
`, nil, false,
			[]string{"panic: test timed out", "FAILED: p TestD: it has not ended",
				"1 passed, 2 failed, 1 skipped"},
		},
		"a promised part ran nothing": {
			passing, []string{"BIRD", "VPP"}, false,
			[]string{"promised part VPP: no test ran on it"},
		},
		"no test ran": {"", nil, false, []string{"no test ran"}},
		"a build that failed": {
			passing + "# p\n" + `{"Action":"build-fail","ImportPath":"p"}` + "\n", nil, false,
			[]string{"# p", "FAILED: build of p"},
		},
		"a part is known by its beginning": {
			passing, []string{"BIRD 2"}, false, []string{"promised part BIRD 2"},
		},
		"a part of a skipped test": {
			`{"Action":"attr","Package":"p","Test":"TestV","Key":"part","Value":"VPP 25"}` + "\n" +
				`{"Action":"skip","Package":"p","Test":"TestV"}` + "\n" + passing, []string{"VPP"},
			false, []string{"promised part VPP"},
		},
		"a script that is skipped": {
			`{"Action":"output","Package":"p","Test":"TestS/x",` +
				`"Output":"    cmd.go:382: not here\n"}
{"Action":"output","Package":"p","Test":"TestS/x",` +
				`"Output":"    testscript.go:609: WORK=/tmp/x\n"}
{"Action":"skip","Package":"p","Test":"TestS/x"}
` + passing, nil, true,
			[]string{"skipped: p TestS/x: not here"},
		},
		"a package without tests is silent": {
			passing + `{"Action":"skip","Package":"q"}` + "\n", nil, true,
			[]string{"1 passed, 0 failed, 1 skipped"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &report{
				out: &out, output: map[string][]string{}, named: map[string][]string{},
				parts: map[string]int{},
			}
			if err := r.read(strings.NewReader(tc.in)); err != nil {
				t.Fatal(err)
			}
			if ok := r.summary(tc.promised); ok != tc.ok {
				t.Errorf("ok %v, want %v", ok, tc.ok)
			}
			for _, s := range tc.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("does not say %q:\n%s", s, out.String())
				}
			}
		})
	}
}
