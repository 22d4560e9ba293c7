package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	patches "vpp-route-agent/third_party/gobgp"
)

func TestModuleOf(t *testing.T) {
	tests := []struct {
		name string
		in   debug.Module
		want component
	}{
		{
			"a module is known by path, version and sum",
			debug.Module{Path: "example.net/a", Version: "v1.2.3", Sum: "h1:x="},
			component{Type: "library", Ref: "pkg:golang/example.net/a@v1.2.3",
				Name: "example.net/a", Version: "v1.2.3",
				PURL:       "pkg:golang/example.net/a@v1.2.3",
				Properties: []property{{"go:sum", "h1:x="}}},
		},
		{
			"a fork is what is in the binary",
			debug.Module{Path: "example.net/a", Version: "v1.2.3", Replace: &debug.Module{
				Path: "example.net/fork", Version: "v2.0.0", Sum: "h1:y=",
			}},
			component{Type: "library", Ref: "pkg:golang/example.net/fork@v2.0.0",
				Name: "example.net/fork", Version: "v2.0.0",
				PURL:       "pkg:golang/example.net/fork@v2.0.0",
				Properties: []property{{"go:sum", "h1:y="}}},
		},
		{
			"a changed copy in a folder keeps the name that advisories use, and no " +
				"path of the machine",
			debug.Module{Path: "example.net/a", Version: "v1.2.3", Replace: &debug.Module{
				Path: "/home/me/guard", Version: "(devel)",
			}},
			component{Type: "library", Ref: "pkg:golang/example.net/a@v1.2.3",
				Name: "example.net/a", Version: "v1.2.3",
				PURL: "pkg:golang/example.net/a@v1.2.3", Properties: []property{{"go:replaced",
					"built from this version with the patches of third_party/gobgp, level " +
						patches.Digest()}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := moduleOf(&tt.in)
			if got.Ref != tt.want.Ref || got.Name != tt.want.Name ||
				got.Version != tt.want.Version || got.PURL != tt.want.PURL ||
				got.Type != tt.want.Type || !slices.Equal(got.Properties, tt.want.Properties) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestBillOfABinary reads a real one: this test's own.
func TestBillOfABinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := write(&first, billOf(info, "v9")); err != nil {
		t.Fatal(err)
	}
	if err := write(&second, billOf(info, "v9")); err != nil || first.String() != second.String() {
		t.Errorf("two bills of one binary differ, %v", err)
	}
	var b bill
	if err := json.Unmarshal(first.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.SpecVersion != "1.5" || b.Version != 1 ||
		b.Metadata.Component.Version != "v9" {
		t.Errorf("head %+v", b)
	}
	if len(b.Components) != 1+len(info.Deps) || b.Components[0].Name != "std" ||
		b.Components[0].Version == "" {
		t.Errorf("%d components for %d modules, the first %+v",
			len(b.Components), len(info.Deps), b.Components)
	}
}
