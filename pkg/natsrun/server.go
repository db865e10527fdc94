package natsrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
)

// reconnectWait is short because an in-process reconnect costs nothing.
const reconnectWait = 10 * time.Millisecond

// Server is an embedded NATS server with JetStream. Its methods are safe for
// concurrent use.
type Server struct {
	cfg  Config
	dir  *storeDir
	url  string
	host string // "" when the server does not listen
	port int

	// begin starts an incarnation that listens on a port.
	begin func(ctx context.Context, port int) (incarnation, error)

	// current is the running incarnation, nil between two of them. In-process connections use it, so a client that
	// reconnects reaches the next one.
	current atomic.Pointer[embedded]

	broken chan struct{} // the server could not write
	ended  chan struct{} // closed by Stop
	healer sync.WaitGroup

	mu      sync.Mutex // one Start, Restart or Stop at a time
	stopped bool
}

// incarnation is the part of *server.Server that a Server needs. It keeps the server's types out of the export data of this package:
// otherwise each importer, down to every test program, would compile the generic types again.
type incarnation interface {
	Addr() net.Addr
	ClientURL() string
	InProcessConn() (net.Conn, error)
	Running() bool
	Shutdown()
	WaitForShutdown()
}

type embedded struct{ incarnation }

// Start runs a server and returns when it takes connections and JetStream is
// on, typically after a few milliseconds; a store with data is recovered first.
// The caller stops it. A server that could not write, such as to a full disk, restarts by itself
// once its directory has room for 8 MiB.
//
// Errors: ErrDirInUse, ErrDirUnusable, ErrNotReady and ErrPortInUse, each with the remedy; an error with all mistakes in cfg; the server's
// refusal of a configuration file.
func Start(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	dir, err := openStoreDir(cfg.Dir, cfg.Memory)
	if err != nil {
		return nil, err
	}
	opts, err := serverOptions(cfg, dir.path)
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	s := &Server{cfg: cfg, dir: dir, port: opts.Port, broken: make(chan struct{}, 1), ended: make(chan struct{})}
	if !opts.DontListen {
		s.host = opts.Host
	}
	s.begin = func(ctx context.Context, port int) (incarnation, error) {
		opts.Port = port
		return startServer(ctx, opts, cfg, s.couldNotWrite)
	}
	if err := s.run(context.Background()); err != nil { //nolint:forbidigo // bounded by ReadyTimeout
		return nil, errors.Join(err, dir.close())
	}
	s.healer.Go(s.heal)
	return s, nil
}

// URL returns the address for clients, "nats://127.0.0.1:port". It is "" when the server does not listen, and Restart
// does not change it.
func (s *Server) URL() string { return s.url }

// InProcessConn returns the client's end of a new connection through memory. It makes the server a nats.InProcessConnProvider. A client
// with nats.InProcessServer(s) reconnects to the running incarnation; a client of a bare *server.Server stays bound to the dead one. While
// the server restarts, and after Stop, it returns ErrStopped.
func (s *Server) InProcessConn() (net.Conn, error) {
	ns := s.current.Load()
	if ns == nil || !ns.Running() {
		return nil, ErrStopped
	}
	conn, err := ns.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return conn, nil
}

// Connect returns an in-process client that reconnects for ever, 10 ms after it lost the server; opts override these defaults. The caller
// has to close it before Stop: otherwise the client goes on trying to reconnect.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.InProcessServer(s),
		nats.MaxReconnects(-1),
		nats.ReconnectJitter(0, 0),
		nats.ReconnectWait(reconnectWait),
		nats.Timeout(s.cfg.ReadyTimeout),
	}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("natsrun: connect in process: %w", err)
	}
	return nc, nil
}

// Restart stops the server gracefully and starts the next incarnation with the same options, on the same store and
// port. File streams keep their messages, memory streams lose theirs. Clients are disconnected and reconnect; requests
// before that may be lost.
//
// After an error the server is down, and Restart may be called again.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.halt()
	select {
	case <-s.broken: // the signal of the former incarnation
	default:
	}
	return s.run(ctx)
}

// Stop ends the server and waits: its goroutines have then ended, the directory is unlocked, and a temporary directory is removed. Calling
// it again does nothing.
func (s *Server) Stop() {
	defer s.healer.Wait() // after mu is free
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.ended)
	s.halt()
	if err := s.dir.close(); err != nil && s.cfg.Logger != nil {
		s.cfg.Logger.Warn("cannot clean up after the server", "error", err)
	}
}

// halt shuts the running incarnation down, if there is one.
func (s *Server) halt() {
	if ns := s.current.Swap(nil); ns != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
}

// run starts one incarnation and waits until it is ready.
func (s *Server) run(ctx context.Context) error {
	// At the first start a taken port is another program's. At a restart it was ours, and the kernel may have used it for an outgoing
	// connection.
	var patience time.Duration
	if s.url != "" {
		patience = s.cfg.ReadyTimeout
	}
	taken, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ns, err := s.begin(ctx, s.port)
	for errors.Is(err, ErrPortInUse) && retry.Sleep(taken, portRetry) {
		ns, err = s.begin(ctx, s.port)
	}
	if err != nil {
		return err
	}
	if s.host != "" && s.url == "" {
		s.url = ns.ClientURL()
		if addr, ok := ns.Addr().(*net.TCPAddr); ok {
			s.port = addr.Port // the next incarnation listens there too
		}
	}
	s.current.Store(&embedded{ns})
	return nil
}

const (
	// roomEvery is the time between two looks for room of a server that could not write, and roomBytes the room that it needs.
	roomEvery = 2 * time.Second
	roomBytes = 8 << 20
)

// heal restarts the server when it could not write and has room again, until Stop. A stream that could not write once refuses all messages
// from then on: only a restart makes it write again.
func (s *Server) heal() {
	for {
		select {
		case <-s.ended:
			return
		case <-s.broken:
		}
		for restarted := false; !restarted; {
			select {
			case <-s.ended:
				return
			case <-time.After(roomEvery):
			}
			err := s.dir.hasRoom()
			if err == nil {
				err = s.Restart(context.Background()) //nolint:forbidigo // bounded by ReadyTimeout
			}
			switch restarted = err == nil; {
			case errors.Is(err, ErrStopped):
				return
			case s.cfg.Logger == nil:
			case restarted:
				s.cfg.Logger.Warn("the server has restarted, because it could not write and has room again", "dir", s.dir.path)
			default:
				s.cfg.Logger.Error("the server cannot write: make room, and it restarts by itself", "dir", s.dir.path, "error", err)
			}
		}
	}
}

// couldNotWrite makes heal restart the server.
func (s *Server) couldNotWrite() {
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// hasRoom returns an error when the directory has no room for roomBytes more.
func (sd *storeDir) hasRoom() (err error) {
	f, err := os.CreateTemp(sd.path, "room-")
	if err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, roomBytes)); err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	return f.Sync()
}
