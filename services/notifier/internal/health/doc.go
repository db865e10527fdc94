// Package health keeps which endpoints of users do not answer, so that no process calls them for nothing.
//
// An endpoint is an address on a channel, such as the URL of a webhook. One that has failed without a success for days is
// disabled, for all processes: that is kept in a bucket, which is written when an endpoint begins to fail, when it works again,
// and when it is disabled, and never while all is well. One that was not reached several times in a row is left alone for a
// while, by each process for itself.
package health
