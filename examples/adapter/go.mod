module github.com/expediter-io/expediter/examples/adapter

go 1.26.0

require (
	github.com/expediter-io/expediter/pkg/natsrun v0.1.0
	go.uber.org/goleak v1.3.0
	golang.org/x/oauth2 v0.36.0
)

require github.com/google/go-cmp v0.7.0 // indirect
