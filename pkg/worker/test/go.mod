module github.com/expediter-io/expediter/pkg/worker/test

go 1.26
