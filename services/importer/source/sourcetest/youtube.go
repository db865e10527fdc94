package sourcetest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// YouTube is a stand-in for YouTube on loopback. It is reached through a proxy, as the real site can be, and has its
// own certificates.
type YouTube struct {
	// CAFile is the file of the certificate that signs all others.
	CAFile string
	// Proxy is the address of the proxy: http://127.0.0.1 and a port.
	Proxy string

	authority *authority
	inner     *http.Server // the server that stands for YouTube
	conns     *conns
	proxy     *http.Server
	servers   sync.WaitGroup

	mu      sync.Mutex
	fetches map[string]int
	looks   map[string]int
	videos  map[string]Video
}

// StartYouTube starts a stand-in with these videos, by id. It writes the certificate into dir.
func StartYouTube(dir string, videos map[string]Video) (*YouTube, error) {
	authority, err := newAuthority()
	if err != nil {
		return nil, err
	}
	y := &YouTube{
		CAFile: filepath.Join(dir, "youtube-ca.pem"), authority: authority, conns: newConns(),
		fetches: map[string]int{}, looks: map[string]int{}, videos: map[string]Video{},
	}
	maps.Copy(y.videos, videos)
	if err := os.WriteFile(y.CAFile, authority.pem, 0o600); err != nil {
		return nil, fmt.Errorf("sourcetest: write the certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback takes no time
	if err != nil {
		return nil, fmt.Errorf("sourcetest: listen: %w", err)
	}
	y.Proxy = "http://" + listener.Addr().String()
	y.inner = &http.Server{Handler: y.site(), ReadHeaderTimeout: time.Minute}
	y.proxy = &http.Server{Handler: http.HandlerFunc(y.connect), ReadHeaderTimeout: time.Minute}
	secure := tls.NewListener(y.conns, &tls.Config{GetCertificate: authority.certificate, MinVersion: tls.VersionTLS12})
	y.serve(y.inner, secure)
	y.serve(y.proxy, listener)
	return y, nil
}

func (y *YouTube) serve(server *http.Server, listener net.Listener) {
	y.servers.Go(func() {
		_ = server.Serve(listener) //nolint:errcheck // ends when it is closed
	})
}

// Close ends all connections and waits for their goroutines.
func (y *YouTube) Close() error {
	err := errors.Join(y.proxy.Close(), y.inner.Close())
	y.servers.Wait()
	return err
}

// Fetches returns the number of requests for the captions of a video.
func (y *YouTube) Fetches(id string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.fetches[id]
}

// Looks returns the number of requests for the page of a video.
func (y *YouTube) Looks(id string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.looks[id]
}

// Put adds a video, or replaces the video with that id.
func (y *YouTube) Put(id string, video Video) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.videos[id] = video
}

func (y *YouTube) count(counts map[string]int, id string) Video {
	y.mu.Lock()
	defer y.mu.Unlock()
	counts[id]++
	return y.videos[id]
}

// connect connects a tunnel to any host with the site.
func (y *YouTube) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "want CONNECT", http.StatusMethodNotAllowed)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil || !y.conns.give(conn) {
		_ = conn.Close() //nolint:errcheck // nobody is there
	}
}

// conns is a listener for existing connections.
type conns struct {
	once    sync.Once
	closed  chan struct{}
	waiting chan net.Conn
}

func newConns() *conns { return &conns{closed: make(chan struct{}), waiting: make(chan net.Conn)} }

func (c *conns) give(conn net.Conn) bool {
	select {
	case c.waiting <- conn:
		return true
	case <-c.closed:
		return false
	}
}

// Accept implements net.Listener.
func (c *conns) Accept() (net.Conn, error) {
	select {
	case conn := <-c.waiting:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (c *conns) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// Addr implements net.Listener.
func (*conns) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// AtWork returns the processes whose working directory is dir or below it; none on systems without /proc.
func AtWork(dir string) []string {
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		panic(err) // the pattern is good
	}
	var out []string
	for _, process := range processes {
		if cwd, err := os.Readlink(process); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+string(filepath.Separator))) {
			out = append(out, process+" is "+cwd)
		}
	}
	return out
}
