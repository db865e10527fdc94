// Package guardeddial connects to addresses that untrusted clients name, and to none in the internal network: a client
// that makes a server call an address must not reach services that only the server may reach.
//
// A name is resolved by the dialer, and every address that it leads to is checked right before it is dialled: the
// address cannot change between the check and the use. An HTTP client is guarded by its transport, redirects included:
//
//	transport := &http.Transport{DialContext: guardeddial.Guard{}.Dialer().DialContext}
package guardeddial
