// Package wall reads the clock on a user's wall: when it shows a time, also on the days on which the clocks change.
//
// A time that the clock jumps over is as much later as it jumps: 02:30 is 03:30 on the night on which 02:00 becomes 03:00.
// One that it shows twice is either of two moments, and who asks says which.
package wall
