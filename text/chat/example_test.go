package chat_test

import (
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text/chat"
)

func Example() {
	template, err := chat.New(chat.Format{
		Template: "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
		Tokens:   map[string]string{"eos_token": "</s>"},
	})
	if err != nil {
		log.Fatal(err)
	}
	messages := []chat.Message{{Role: "user", Content: "Where is Paris?"}, {Role: "assistant", Content: "In France."}}
	prompt, err := template.Render(messages[:1], true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(prompt)
	text, spans, err := template.Answers(messages)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", text[spans[0].From:spans[0].To])
	// Output:
	// user: Where is Paris?</s>
	// assistant:
	// " In France.</s>\n"
}
