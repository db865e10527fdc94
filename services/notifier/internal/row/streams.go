package row

import (
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Streams are the streams of rows. The first also has the plans, the digests, and the rows of plans without
// partitions.
type Streams [contracts.MaxNotifyPartitions]*kvrecord.Stream

// Open returns the streams of rows. No round trip.
func Open(records *kvrecord.Client) *Streams {
	var s Streams
	for p := range s {
		s[p] = records.Partition(contracts.StreamNotifications, p)
	}
	return &s
}

// Named returns the stream with a name, and the first for any other name.
func (s *Streams) Named(name string) *kvrecord.Stream {
	for p := range s {
		if contracts.NotifyStream(p) == name {
			return s[p]
		}
	}
	return s[0]
}
