package subject_test

import (
	"fmt"

	"github.com/expediter-io/expediter/internal/subject"
)

func Example() {
	for _, id := range []string{"ChIJ123", "a b.*"} {
		encoded, err := subject.EncodeToken(id)
		if err != nil {
			fmt.Println(err)
			continue
		}

		decoded, err := subject.DecodeToken(encoded)
		fmt.Println(encoded, decoded, subject.IsSafeToken(id), err)
	}
	// Output:
	// ChIJ123 ChIJ123 true <nil>
	// =YSBiLio a b.* false <nil>
}
