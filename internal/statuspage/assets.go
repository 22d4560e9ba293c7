package statuspage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets/*.html assets/*.css assets/*.js assets/*.svg
var assets embed.FS

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// addAssets serves index.html at / and the other files below /page/.
func addAssets(mux *http.ServeMux) {
	all, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic("statuspage: " + err.Error())
	}
	for _, f := range all {
		text, err := fs.ReadFile(assets, "assets/"+f.Name())
		if err != nil {
			panic("statuspage: " + err.Error())
		}
		pattern := "GET /page/" + f.Name()
		if f.Name() == "index.html" {
			pattern = "GET /{$}"
		}
		kind, tag := contentTypes[path.Ext(f.Name())], fmt.Sprintf("%q", fmt.Sprintf("%x",
			sha256.Sum256(text))[:16])
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache") // ask again, and get 304
			w.Header().Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
		})
	}
}
