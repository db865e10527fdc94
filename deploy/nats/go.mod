module github.com/expediter-io/expediter/deploy/nats

go 1.26
