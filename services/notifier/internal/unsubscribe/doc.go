// Package unsubscribe lets a user switch a category off on a channel by a link out of a message, without signing in: by one POST, as
// RFC 8058 has it, or on a small page that makes it.
package unsubscribe
