module github.com/expediter-io/expediter/cmd/expediter

go 1.26
