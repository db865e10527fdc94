// Package access names the callers of an HTTP interface by their keys, and decides which routes they may use.
//
// A [Key] has scopes, and may be bound to one user. A file keeps the hashes of the secrets only, see [Keys]. Every route has
// a [Need]: [Public], [All] or [Own]. A caller that is bound to a user gets no further than routes of [Own], whose handlers
// check with [Caller.For] that what a request names is the user's.
package access
