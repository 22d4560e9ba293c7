package statuspage

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy lets the page load nothing that this listener does not serve, and run nothing that stands
// in the page itself. Data of peers never become code: no string can be turned into elements.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// guard refuses what another site's page could have a browser ask for, and all but reading.
func (p *Page) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the status page is only read", http.StatusMethodNotAllowed)
		case !p.knownHost(r.Host):
			http.Error(w, "the status page answers to an IP address, to localhost and to the "+
				"names in the listener's certificate, and not to another name: it may be another "+
				"site's (DNS rebinding)", http.StatusForbidden)
		case r.URL.Path != "/" && fromElsewhere(r):
			http.Error(w, "another site's page asked for this", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// knownHost reports whether a Host header names this listener and not a site whose name was made to
// lead here. Such a site has a name: it cannot have an address, or localhost (RFC 6761 §6.3).
func (p *Page) knownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || p.cfg.Named != nil && p.cfg.Named(host)
}

// fromElsewhere reports whether a browser says that another origin's page asks (Fetch Metadata).
// Programs that are no browsers say nothing.
func fromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return true
}
