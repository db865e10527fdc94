// Package order tells a worker that the next job of a subject may start: when no job of the subject is before it in the stream.
package order

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// soonest and latest bound the delay of a job that is given back because no more jobs may wait. While no job of its subject ends here,
	// the delay is at least a fourth of the time since the last end, at most rarest.
	soonest = 100 * time.Millisecond
	rarest  = 10 * time.Second
	latest  = time.Minute

	// maxStrays is the number of keys with jobs that were given back that are remembered.
	maxStrays = 100_000
)

// Arrival is a delivery.
type Arrival struct {
	Back      bool // the consumer has gone back: it has delivered this message, or a later one, before
	Consumer  string
	Delivered int    // the number of deliveries of the message, this one included
	Delivery  uint64 // consumer sequence
	Sequence  uint64
	Subject   string
}

// Job is an ordered job that the worker holds. Lines.Follow sets all fields but Turn.
type Job struct {
	// Turn gets an element when the job may be the first of its subject now, or has to go back. Its maker sets it, with room for one.
	Turn chan struct{}

	back      time.Duration // the time after which it is to come again, guarded by Lines.mu
	came      time.Time
	chain     *chain
	delivered int
	number    int // of the chain when it came
	sequence  uint64
	subject   string
}

// Lines lets a job start when no job of its subject is before it in the stream: then all earlier jobs have ended, in any worker, since a
// work queue keeps a job until its end. That is certain when the first message of the subject is the job itself, on any replica: a replica
// that has the job has had all earlier ones.
//
// A read for each job would cost half of the throughput. So a worker follows the deliveries of its consumer. While no consumer sequence is
// missing, every job since the first of this chain came here, so the worker knows which jobs of a subject have not ended. Once all
// messages before the chain are acknowledged, no read is needed for jobs of the chain. The zero value has no deliveries.
type Lines struct {
	mu     sync.Mutex
	chains map[string]*chain // by consumer
}

// chain is a series of deliveries without a gap.
type chain struct {
	base   uint64 // stream sequence of its first message
	clean  bool   // no message is left before base
	floor  uint64 // no message is left up to here
	keys   map[string]*keyed
	next   uint64 // consumer sequence of the next delivery
	number int    // rises with each gap
	strays int    // keys with a stray
}

// keyed has the jobs of a subject that this worker holds, or gave back.
type keyed struct {
	away  int           // the number of jobs that went back for want of room, and did not come here again
	began time.Time     // the time at which the job in runs started
	ended time.Time     // the time at which a job last ended here
	every time.Duration // the time from one end to the next, when nothing delayed the jobs
	held  []*Job        // by their sequences
	runs  *Job          // the job that runs here, nil for none
	since uint64        // of the jobs left, none below this sequence was given back
	stray uint64        // the last sequence that was given back, 0 for none
}

// chain returns the chain of a consumer. The caller holds mu.
func (l *Lines) chain(consumer string) *chain {
	c := l.chains[consumer]
	if c == nil {
		c = &chain{keys: make(map[string]*keyed)}
		if l.chains == nil {
			l.chains = make(map[string]*chain)
		}
		l.chains[consumer] = c
	}
	return c
}

// Follow notes a delivery. It must be called for every delivery, in the order of arrival. For jobs that are not ordered, j is nil.
func (l *Lines) Follow(a Arrival, j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chain(a.Consumer)
	if a.Back || a.Delivery != c.next || c.strays > maxStrays {
		c.base, c.clean, c.strays = 0, false, 0
		c.number++
		for name, k := range c.keys {
			if k.stray = 0; len(k.held) == 0 {
				delete(c.keys, name)
			}
		}
	}
	c.next = a.Delivery + 1
	if c.base == 0 && a.Delivered <= 1 {
		c.base = a.Sequence
		c.clean = c.base == c.floor+1 // not if base is lower: that is the floor of a former stream
	}
	if j != nil {
		j.chain, j.delivered, j.number, j.sequence, j.subject = c, a.Delivered, c.number, a.Sequence, a.Subject
	}
}

// Add puts an ordered delivery into the line of its subject.
func (l *Lines) Add(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	if k == nil {
		k = &keyed{ended: time.Now()}
		c.keys[j.subject] = k
	}
	at, _ := slices.BinarySearchFunc(k.held, j.sequence, func(j *Job, sequence uint64) int {
		return cmp.Compare(j.sequence, sequence)
	})
	k.held = slices.Insert(k.held, at, j)
	j.came = time.Now()
	if j.delivered > 1 && k.away > 0 {
		k.away--
	}
}

// End removes a delivery from its line. gone is true when the job has certainly left the stream.
func (l *Lines) End(j *Job, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	k.held = slices.DeleteFunc(k.held, func(other *Job) bool { return other == j })
	if k.runs == j {
		k.runs = nil
	}
	switch {
	case gone:
		now, from := time.Now(), k.ended
		// A job that went back for too long delays all behind it: that must not send those back for even longer. So the time in which
		// it was not here does not count, and the pace at most doubles.
		if j.delivered > 1 && j.came.After(from) {
			from = j.came
		}
		k.every, k.ended = min(now.Sub(from), max(2*k.every, soonest/10)), now
		c.settle(k, j.sequence)
	case k.stray == 0:
		c.strays++
		k.since, k.stray = j.sequence, j.sequence
	default:
		k.since, k.stray = min(k.since, j.sequence), max(k.stray, j.sequence)
	}
	if len(k.held) > 0 {
		k.held[0].Signal()
	} else if k.stray == 0 {
		delete(c.keys, j.subject)
	}
}

// Signal makes a job check whether it may run, or has to go back.
func (j *Job) Signal() {
	select {
	case j.Turn <- struct{}{}:
	default:
	}
}

// SendBack chooses a job of j's subject that goes back to the server because no more jobs may wait: the last, so that those stay whose
// turn comes first. It comes back after half of the time in which all jobs before it will have ended, at the recent pace.
func (l *Lines) SendBack(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, last := j.chain.keys[j.subject], j
	for _, other := range k.held {
		if other.back == 0 && other.sequence > last.sequence {
			last = other
		}
	}
	now := time.Now()
	gap := k.every
	if k.runs != nil {
		gap = max(gap, now.Sub(k.began))
	}
	ahead := len(k.held)
	if sequence := last.sequence; sequence > k.since {
		ahead += int(float64(k.away) * min(1, float64(sequence-k.since)/float64(k.stray-k.since+1)))
	}
	// Half of the time, so that the job is here again when its turn comes. The first job may be another worker's, and take hours.
	least := min(max(now.Sub(k.ended)/4, soonest), rarest)
	last.back = min(max(gap*time.Duration(ahead)/2, least), latest)
	k.away++
	last.Signal()
}

// SentBack returns the time after which a job that has to go back is to come again, 0 for a job that stays.
func (l *Lines) SentBack(j *Job) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return j.back
}

// settle notes that no job of a key up to a sequence is left.
func (c *chain) settle(k *keyed, sequence uint64) {
	if k.since = max(k.since, sequence+1); k.stray != 0 && k.stray <= sequence {
		k.stray = 0
		c.strays--
	}
}

// Look reports whether a delivery is the first of its subject in this worker, and whether it is surely the first in the stream. If not
// surely, from is the sequence from which to look for earlier ones.
func (l *Lines) Look(j *Job) (first, sure bool, from uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	stray := k.stray != 0 && k.since < j.sequence
	if from = c.floor + 1; from > j.sequence { // the floor of a stream that was deleted and made again
		from = 1
	}
	return k.held[0] == j, c.clean && j.delivered <= 1 && j.number == c.number && !stray, from
}

// Start notes that a delivery starts, and that no job of its subject is before it.
func (l *Lines) Start(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	k.began, k.runs = time.Now(), j
	c.settle(k, j.sequence)
}

// Acknowledged notes the ack floor of a consumer.
func (l *Lines) Acknowledged(consumer string, floor uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chain(consumer)
	c.floor = floor // the floor falls when the consumer was made again
	c.clean = c.clean || c.base != 0 && c.floor >= c.base-1
}
