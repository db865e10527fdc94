// Package throttle counts the rows that a user was sent lately, over all processes. There is one record for each user,
// channel and group of notifications, which is written only over the one that was read.
//
// A grant lets one row be sent now. No stretch of time as long as the period has more grants than the limit. A row that
// finds no room is promised a later time with room, after the times that were promised before. So rows have their turns in
// the order in which they asked, and each waits once. A row that is late for its turn may find the turn taken.
package throttle
