// Package throttle counts how many rows a user was sent lately, over all processes: one record for each user, channel and
// group of notifications, written only over the one that was read.
//
// A grant lets one row be sent now. In no stretch of time as long as the period are there more grants than the limit. A row
// that finds no room is promised a time at which there will be, behind those that were promised before: rows come to their
// turn in the order in which they asked, each waits once, and a row that is late for its turn may find it taken.
package throttle
