module github.com/expediter-io/expediter/examples/adapter

go 1.26.0

require (
	go.uber.org/goleak v1.3.0
	golang.org/x/oauth2 v0.36.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

require (
	github.com/expediter-io/expediter/pkg/natsrun/natstest/check v0.1.0
	github.com/google/go-cmp v0.7.0 // indirect
)
