package token_test

import (
	"fmt"

	"github.com/expediter-io/expediter/pkg/worker/token"
)

func Example() {
	for _, id := range []string{"ChIJ123", "a b.*"} {
		encoded, err := token.Encode(id)
		if err != nil {
			fmt.Println(err)
			continue
		}

		decoded, err := token.Decode(encoded)
		fmt.Println(encoded, decoded, token.IsSafe(id), err)
	}
	// Output:
	// ChIJ123 ChIJ123 true <nil>
	// =YSBiLio a b.* false <nil>
}
