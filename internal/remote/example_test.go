package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
)

func ExampleGuard() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	transport := &http.Transport{DialContext: remote.Guard{}.Dialer().DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://169.254.169.254/latest/meta-data/", http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := client.Do(request)
	if err == nil {
		response.Body.Close()
	}
	if blocked, ok := errors.AsType[*remote.BlockedError](err); ok {
		fmt.Println(blocked)
	}
	// Output: 169.254.169.254:80 is blocked: it is in a private or special network
}
