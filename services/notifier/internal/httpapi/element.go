package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"time"
)

// element is the custom element of the inbox, with the client for browsers. clients/typescript makes it.
//
//go:embed expediter-inbox.js
var element []byte

var elementTag = fmt.Sprintf(`"%x"`, sha256.Sum256(element))

// script answers GET /v1/expediter-inbox.js. Pages of the origins that the router trusts can also import it.
func script(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Cache-Control", "no-cache") // browsers ask each time, and get the script when it has changed
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("ETag", elementTag)
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(element))
	return nil
}
