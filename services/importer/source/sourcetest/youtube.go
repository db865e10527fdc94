package sourcetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// YouTube is a stand-in for YouTube on loopback. It is reached through a proxy, as the real site can be, and has its
// own certificate.
type YouTube struct {
	// CAFile is the file of the certificate.
	CAFile string
	// Proxy is the address of the proxy: http://127.0.0.1 and a port.
	Proxy string

	inner   *httptest.Server // the server that stands for YouTube
	tunnels sync.WaitGroup

	mu      sync.Mutex
	fetches map[string]int
	looks   map[string]int
	videos  map[string]Video
}

// StartYouTube starts a stand-in with these videos, by id, and stops it at the end of the test.
func StartYouTube(t testing.TB, videos map[string]Video) *YouTube {
	t.Helper()
	y := &YouTube{
		CAFile:  filepath.Join(t.TempDir(), "youtube-ca.pem"),
		fetches: map[string]int{}, looks: map[string]int{}, videos: map[string]Video{},
	}
	maps.Copy(y.videos, videos)
	certificate, err := newCertificate("www.youtube.com")
	if err == nil {
		public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
		err = os.WriteFile(y.CAFile, public, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	y.inner = httptest.NewUnstartedServer(y.site())
	y.inner.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	y.inner.StartTLS()
	proxy := httptest.NewServer(http.HandlerFunc(y.connect))
	y.Proxy = proxy.URL
	t.Cleanup(func() {
		y.inner.CloseClientConnections()
		y.inner.Close()
		proxy.Close()
		y.tunnels.Wait()
	})
	return y
}

// newCertificate returns a certificate of a host that is its own authority.
func newCertificate(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sourcetest: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		BasicConstraintsValid: true, DNSNames: []string{host}, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotAfter: now.Add(24 * time.Hour), NotBefore: now.Add(-time.Hour), SerialNumber: big.NewInt(1),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sourcetest: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
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
	site, err := new(net.Dialer).DialContext(r.Context(), "tcp", y.inner.Listener.Addr().String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // HTTP/1 can
	}
	_, _ = client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) // then the copies end at once
	for from, to := range map[net.Conn]net.Conn{client: site, site: client} {
		y.tunnels.Go(func() {
			_, _ = io.Copy(to, from)        // until one of them is closed
			_, _ = from.Close(), to.Close() // the other copy may have closed them
		})
	}
}

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
