// Command sbom prints a bill of materials of a Go binary, as CycloneDX 1.5 in JSON: sbom BINARY
// VERSION. It reads what the linker wrote into the binary, not go.mod: so it names what is in there
// and nothing else. Licenses come from the modules' own files; one that is not recognized is an
// error. Run by `make release`, in the root of the module.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	patches "vpp-route-agent/third_party/gobgp"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err == nil {
		err = printBill(info, os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func printBill(info *debug.BuildInfo, version string) error {
	b := billOf(info, version)
	if err := addLicenses(&b); err != nil {
		return err
	}
	return write(os.Stdout, b)
}

// goLibrary is the name of Go's standard library, also in advisories.
const goLibrary = "std"

// bill and its parts have the names of the CycloneDX 1.5 JSON schema.
type bill struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"` // and no timestamp: the same binary gives the same bytes
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Licenses   []license  `json:"licenses,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billOf lists the modules in the order of the binary, which is that of their paths, and before
// them Go's library.
func billOf(info *debug.BuildInfo, version string) bill {
	b := bill{Format: "CycloneDX", SpecVersion: "1.5", Version: 1}
	b.Metadata.Component = part("application", info.Main.Path, version)
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			b.Metadata.Component.Properties = append(b.Metadata.Component.Properties, property{
				"go:" + s.Key, s.Value,
			})
		}
	}
	// "go1.26.1 X:experiment": what follows the version is how it was built.
	release, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	b.Components = append(b.Components, part("library", goLibrary, release))
	for _, m := range info.Deps {
		b.Components = append(b.Components, moduleOf(m))
	}
	return b
}

// moduleOf names a module under the path by which advisories know it. One that comes from a folder
// (GoBGP, patched) keeps name and version of what the folder was made of, and says that it was
// changed.
func moduleOf(m *debug.Module) component {
	from := m
	if m.Replace != nil && m.Replace.Version != "" && m.Replace.Version != "(devel)" {
		from = m.Replace
	}
	c := part("library", from.Path, from.Version)
	switch {
	case from.Sum != "":
		c.Properties = append(c.Properties, property{"go:sum", from.Sum})
	case m.Replace != nil:
		c.Properties = append(c.Properties, property{
			"go:replaced",
			"built from this version with the patches of third_party/gobgp, level " +
				patches.Digest(),
		})
	}
	return c
}

func part(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

func write(w io.Writer, b bill) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(b)
}
