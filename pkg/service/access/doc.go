// Package access names the callers of an HTTP interface by their keys or tokens, and decides which routes they may use.
//
// A [Key] has scopes, and may be bound to one user. A file keeps the hashes of the secrets only, see [Keys]. Tokens are those of
// an issuer of OpenID Connect, see [OIDC]; a token is bound to its subject unless it has the scope all-users. Every route has
// a [Need]: [Public], [All] or [Own]. A caller that is bound to a user gets no further than routes of [Own], whose handlers
// check with [Caller.For] that what a request names is the user's.
package access
