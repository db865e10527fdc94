package program

// head keeps the start of an output and says when there is more.
type head struct {
	data []byte
	max  int
	over chan struct{}
	done bool
}

// Write implements io.Writer. It takes everything, so that the program is not stopped by a full pipe before it is killed.
func (h *head) Write(p []byte) (int, error) {
	keep := min(len(p), h.max-len(h.data))
	h.data = append(h.data, p[:keep]...)
	if keep < len(p) && !h.done {
		h.done = true
		close(h.over)
	}
	return len(p), nil
}

// tail keeps the end of an output.
type tail struct {
	data []byte
	max  int
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 4*t.max {
		t.data = append(t.data[:0], t.last()...)
	}
	return len(p), nil
}

func (t *tail) last() []byte { return t.data[max(0, len(t.data)-t.max):] }
