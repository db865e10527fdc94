// Package schedule computes the times at which a user is notified: by the clock of the user's time zone, also on days on
// which the clock changes, and outside quiet hours.
//
// A time of day that the clock jumps over is later by the length of the jump: 02:30 is 03:30 on the night on which 02:00
// becomes 03:00. A time of day that the clock shows twice is one of two times; the caller chooses.
package schedule
