module github.com/expediter-io/expediter/pkg/kvlock/test

go 1.26
