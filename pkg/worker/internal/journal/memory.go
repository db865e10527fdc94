package journal

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/compress"
)

// Memory keeps the journal of one job in this process, for tests of handlers.
type Memory struct {
	codec compress.Codec

	mu         sync.Mutex
	data       []byte
	deliveries int
	parts      map[string][]byte
	revision   uint64
}

// NewMemory returns an empty journal.
func NewMemory() *Memory {
	return &Memory{codec: compress.New(), parts: make(map[string][]byte)}
}

// Open returns the journal in the hands of the next attempt.
func (m *Memory) Open(base context.Context, lost func(error)) *Journal {
	const ever = 100 * 365 * 24 * time.Hour

	m.mu.Lock()
	defer m.mu.Unlock()

	m.deliveries++
	return &Journal{
		attempt: Attempt{Deliveries: m.deliveries, Job: "memory", Lost: lost},
		base:    context.WithoutCancel(base), store: m, turn: make(chan struct{}, 1),
		limits: limits{codec: &m.codec, part: maxPart, settle: time.Minute, timeout: time.Minute, ttl: ever},
	}
}

func (m *Memory) drop(part string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.parts, part)
}

func (m *Memory) fetch(_ context.Context, part string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if data, ok := m.parts[part]; ok {
		return data, nil
	}
	return nil, errMissing
}

func (m *Memory) forget(data []byte, expect uint64) {
	_, _ = m.save(context.Background(), data, expect) //nolint:errcheck,forbidigo // as over the network
}

func (m *Memory) load(context.Context) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.data), m.revision, nil
}

func (m *Memory) put(_ context.Context, part string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.parts[part] = bytes.Clone(data)
	return nil
}

func (m *Memory) save(_ context.Context, data []byte, expect uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if expect != m.revision {
		return 0, &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence, Description: "wrong last sequence"}
	}

	m.data, m.revision = bytes.Clone(data), m.revision+1
	return m.revision, nil
}
