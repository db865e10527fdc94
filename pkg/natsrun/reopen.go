package natsrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// roomEvery is how often a server that could not write looks for room, and roomBytes is how much it wants to find.
	roomEvery = 2 * time.Second
	roomBytes = 8 << 20
)

// heal restarts the server when it could not write and has room again, until Stop. A stream of the server that could not write
// once refuses everything from then on: nothing but a restart makes it write again.
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

// couldNotWrite has heal restart the server.
func (s *Server) couldNotWrite() {
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// hasRoom returns an error when the directory does not take roomBytes more.
func (sd *storeDir) hasRoom() (err error) {
	f, err := os.CreateTemp(sd.path, "room-")
	if err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, roomBytes)); err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	return f.Sync() //nolint:wrapcheck // names the file
}
