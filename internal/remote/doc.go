// Package remote calls services over HTTP: those that operators name, with a [Client], and addresses that untrusted people name, through a
// [Guard]. A [Breaker] decides when one that fails is called again.
//
// A client that makes a server call an address must not reach services that only the server may reach. The dialer of a Guard resolves a
// name, and checks each of its addresses right before dialling it: the address cannot change between the check and the use. An HTTP client
// is guarded by its transport, redirects included:
//
//	transport := &http.Transport{DialContext: remote.Guard{}.Dialer().DialContext}
//
// A Client makes each call once, over a separate connection, in bounded time, with a bounded answer. No error holds the address or the
// token: both may be secret.
package remote
