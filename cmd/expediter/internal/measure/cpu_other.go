//go:build !unix

package measure

import "time"

func processorTime() time.Duration { return 0 }
