// Package patches knows which patches and files the GoBGP of this commit has. It holds none of
// GoBGP's code: `make` applies them to the released module (see README.md).
package patches

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
)

//go:embed upstream.mod upstream.sum *.patch _files
var all embed.FS

// Digest returns what the script series writes into the GoBGP that it makes. A binary whose GoBGP
// has another one was built without make, in a folder that an earlier commit filled.
func Digest() string {
	var names []string
	h := sha256.New()
	err := fs.WalkDir(all, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		panic("patches: " + err.Error()) // what is embedded can be read
	}
	slices.Sort(names)
	for _, name := range names {
		content, err := all.ReadFile(name)
		if err != nil {
			panic("patches: " + err.Error())
		}
		fmt.Fprintf(h, "%s\n%s", name, content)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
