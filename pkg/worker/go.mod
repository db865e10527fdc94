module github.com/expediter-io/expediter/pkg/worker

go 1.26
