// Package schedule computes when a user is notified: by the clock of the user's time zone, also on the days on which that
// clock is changed, and outside quiet hours.
//
// A time that the clock jumps over is as much later as it jumps: 02:30 is 03:30 on the night on which 02:00 becomes 03:00. One
// that it shows twice is either of two moments, and the caller says which.
package schedule
