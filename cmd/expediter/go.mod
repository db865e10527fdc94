module github.com/expediter-io/expediter/cmd/expediter

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/text v0.43.0
)

require github.com/stretchr/testify v1.9.0 // indirect
