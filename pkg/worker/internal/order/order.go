// Package order tells a worker when the next job of a subject may start: when none of the subject lies before it in the stream.
package order

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// soonest and latest bound the delay of a job that is given back since no more may wait. While no job of its subject ends here, it
	// is a fourth of that time at least, or rarest.
	soonest = 100 * time.Millisecond
	rarest  = 10 * time.Second
	latest  = time.Minute

	// maxStrays is how many keys with jobs that were given back are remembered.
	maxStrays = 100_000
)

// Arrival is a delivery.
type Arrival struct {
	Back      bool // the consumer has gone back: it has delivered the message, or a later one, before
	Consumer  string
	Delivered int    // how often the server has delivered the message, this time included
	Delivery  uint64 // consumer sequence
	Sequence  uint64
	Subject   string
}

// Job is an ordered job that the worker holds. Lines.Follow makes it one.
type Job struct {
	// Turn receives when the job may be the first of its subject now, or has to go back.
	Turn chan struct{}

	back      time.Duration // after which it is to come again, guarded by Lines.mu
	chain     *chain
	delivered int
	number    int // of the chain when it came
	sequence  uint64
	subject   string
}

// Lines lets a job start when no job of its subject lies before it in the stream: then all of them have ended, in whatever worker,
// since a work queue keeps a job until then. That is certain when the first message of the subject is the job itself, as any
// replica has it: one that has the job has had all before it.
//
// To read that for each job would cost half of the throughput. So a worker follows the deliveries of its consumer. While no
// consumer sequence is missing, every job since the first of this chain came here, so it is known which jobs of a subject have
// not ended. Once everything before the chain is acknowledged, no job of it is read. The zero value has no deliveries.
type Lines struct {
	mu     sync.Mutex
	chains map[string]*chain // by consumer
}

// chain is a row of deliveries without a gap.
type chain struct {
	base   uint64 // stream sequence of its first message
	clean  bool   // nothing is left before base
	floor  uint64 // up to here nothing is left
	keys   map[string]*keyed
	next   uint64 // consumer sequence of the next delivery
	number int    // rises with each gap
	strays int    // keys with a stray
}

// keyed are the jobs of a subject that this worker holds, or gave back.
type keyed struct {
	away  int           // jobs that went back for want of room, and did not come again here
	began time.Time     // when the job in runs started
	ended time.Time     // when a job last ended here
	every time.Duration // from one end to the next, when nothing held them up
	held  []*Job        // by their sequences
	runs  *Job          // the one that runs here, nil for none
	since uint64        // a sequence below which none was given back, of those that are left
	stray uint64        // the last one that was given back, 0 for none
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

// Follow notes a delivery. Every one must be noted, in the order of arrival, also those of jobs that are not ordered, for which j is nil.
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
		c.clean = c.base == c.floor+1 // not less: that would be the floor of a former stream
	}
	if j != nil {
		*j = Job{Turn: make(chan struct{}, 1), chain: c, delivered: a.Delivered, number: c.number, sequence: a.Sequence, subject: a.Subject}
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
	if j.delivered > 1 && k.away > 0 {
		k.away--
	}
}

// End takes a delivery out of its line. gone is true when the job has certainly left the stream.
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
		now := time.Now()
		// A job that went back for too long holds up all behind it: that must not send those back for even longer.
		k.every, k.ended = min(now.Sub(k.ended), max(2*k.every, soonest/10)), now
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

// Signal has a job look whether it may run, or has to go back.
func (j *Job) Signal() {
	select {
	case j.Turn <- struct{}{}:
	default:
	}
}

// SendBack chooses a job of j's subject that goes back to the server since no more may wait: the last, so that those stay whose turn
// comes first. It comes back in half of the time in which all before it will have ended, by the pace of late.
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
	// Half of it, so that the job is here again when its turn comes. The one before all may be another worker's, and take hours.
	least := min(max(now.Sub(k.ended)/4, soonest), rarest)
	last.back = min(max(gap*time.Duration(ahead)/2, least), latest)
	k.away++
	last.Signal()
}

// SentBack returns after how long a job that has to go back is to come again, 0 for one that stays.
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

// Look reports whether a delivery is the first of its subject that this worker holds, whether it is certain that there is no other
// before it, and from where in the stream to look otherwise.
func (l *Lines) Look(j *Job) (first, sure bool, from uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	stray := k.stray != 0 && k.since < j.sequence
	if from = c.floor + 1; from > j.sequence { // of a stream that was deleted and made again
		from = 1
	}
	return k.held[0] == j, c.clean && j.delivered <= 1 && j.number == c.number && !stray, from
}

// Start notes that nothing lies before a delivery, which starts.
func (l *Lines) Start(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := j.chain
	k := c.keys[j.subject]
	k.began, k.runs = time.Now(), j
	c.settle(k, j.sequence)
}

// Acknowledged notes up to where a consumer has acknowledged everything.
func (l *Lines) Acknowledged(consumer string, floor uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chain(consumer)
	c.floor = floor // it falls when the consumer was made again
	c.clean = c.clean || c.base != 0 && c.floor >= c.base-1
}
