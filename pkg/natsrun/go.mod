module github.com/expediter-io/expediter/pkg/natsrun

go 1.26
