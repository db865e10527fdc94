// Package guardeddial connects to addresses that untrusted clients name, and to no address in the internal network. A client that makes a
// server call an address must not reach services that only the server may reach.
//
// The dialer resolves a name, and checks each of its addresses right before dialling it: the address cannot change between the check and
// the use. An HTTP client is guarded by its transport, redirects included:
//
//	transport := &http.Transport{DialContext: guardeddial.Guard{}.Dialer().DialContext}
package guardeddial
