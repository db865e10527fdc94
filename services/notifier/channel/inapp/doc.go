// Package inapp is the channel into an inbox that users look at: a bucket with one key for each user and event. An item is
// unread, read or archived, and is removed when it is old.
//
// The bucket takes an item once, so that a user has it exactly once, however often it is sent.
package inapp
