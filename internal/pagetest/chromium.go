package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// program is Chromium, and what it needs in its environment.
type program struct {
	path  string
	env   []string
	fonts []string // folders
}

// findChromium takes Chromium from this machine, or Debian's package, unpacked below dir.
func findChromium(ctx context.Context, dir string) (program, error) {
	p := program{fonts: []string{"/usr/share/fonts"}}
	if path, err := exec.LookPath("chromium"); err == nil {
		p.path = path
		return p, nil
	}
	pkg, err := netlab.Unpack(ctx, dir, "chromium", "")
	if err != nil {
		return p, err
	}
	// Beside this program are the files that it reads. The one in usr/bin is a script with paths.
	p.path = filepath.Join(pkg.Root, "usr/lib/chromium/chromium")
	p.env = pkg.Env()
	p.fonts = append(p.fonts, filepath.Join(pkg.Root, "usr/share/fonts"))
	return p, nil
}

// browser is a Chromium in a namespace of its own, from which nothing leads anywhere: what pages it
// shows, reach passes on.
type browser struct {
	*devtools
	axe  string // axe-core's program
	lab  *netlab.Lab
	home *netlab.Namespace
	stop context.CancelFunc
	wg   sync.WaitGroup
	ctx  context.Context
}

// fontConfig names the fonts, so that pictures from two machines look alike.
const fontConfig = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  %s<cachedir>%s</cachedir>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <match><edit name="family" mode="append_last"><string>DejaVu Sans</string></edit></match>
</fontconfig>
`

func startBrowser(ctx context.Context, lab *netlab.Lab, p program) (*browser, error) {
	home, err := lab.Namespace("browser")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(lab.Dir(), "browser")
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	fonts, folders := filepath.Join(dir, "fonts.conf"), ""
	for _, f := range p.fonts {
		folders += "<dir>" + f + "</dir>"
	}
	err = os.WriteFile(fonts, fmt.Appendf(nil, fontConfig, folders, dir+"/fonts"), 0o600)
	if err != nil {
		return nil, err
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = lab.Start(netlab.Spec{
		Name: "chromium", Namespace: home, Path: p.path, Files: []*os.File{theirIn, theirOut},
		Env: append(p.env, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir,
			"TMPDIR="+dir+"/tmp", "FONTCONFIG_FILE="+fonts),
		Args: []string{
			"--remote-debugging-pipe", "--user-data-dir=" + dir + "/data", "--headless",
			"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
			"--no-first-run", "--disable-background-networking", "--disable-component-update",
			"--disable-sync", "--hide-scrollbars", "about:blank",
		},
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		ourIn.Close()
		ourOut.Close()
		return nil, err
	}
	b := &browser{devtools: newDevtools(ourIn, ourOut), lab: lab, home: home}
	b.ctx, b.stop = context.WithCancel(ctx)
	b.wg.Go(func() {
		<-b.done
		ourIn.Close()
	})
	err = b.call(ctx, "", "Browser.getVersion", nil, nil)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err,
			testcluster.Tail(filepath.Join(lab.Dir(), "chromium.log"), 15))
	}
	return b, err
}

// close ends Chromium, and all that leads to pages.
func (b *browser) close() {
	b.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	b.call(ctx, "", "Browser.close", nil, nil) // else the lab ends it
	b.to.Close()
	b.wg.Wait()
}

// listen listens on the loopback of Chromium's namespace, until the browser is closed.
func (b *browser) listen() (l net.Listener, err error) {
	err = b.home.Do(func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	if err == nil {
		context.AfterFunc(b.ctx, func() { l.Close() })
	}
	return l, err
}

// reach returns the URL under which Chromium finds what an agent serves beside its metrics. Where
// the agent refuses a connection, Chromium's is closed.
func (b *browser) reach(a *testcluster.Agent) (string, error) {
	l, err := b.listen()
	if err != nil {
		return "", err
	}
	b.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() {
				defer near.Close()
				far, err := testcluster.Dial(b.ctx, a.NS, "tcp4", testcluster.MetricsAddress)
				if err != nil {
					return
				}
				defer far.Close()
				defer context.AfterFunc(b.ctx, func() { near.Close(); far.Close() })()
				b.wg.Go(func() {
					io.Copy(far, near)
					far.(*net.TCPConn).CloseWrite()
				})
				io.Copy(near, far)
			})
		}
	})
	return "http://" + l.Addr().String(), nil
}
