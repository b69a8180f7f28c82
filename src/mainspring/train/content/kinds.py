"""Sentences put into a real reply: what they are called, and how they may read.

Every kind has clauses (`train`, and one `test` wording) and sentences with slots in braces. TEST_KINDS and
CALIBRATION_KINDS are never inserted or asked about in training. Kinds marked `made_up` count only where the input does
not hold the inserted value: the same sentence is absent when the user gave the value before.
"""

from dataclasses import dataclass

TEST_KINDS = (
    "fake_email",
    "discount_code",
    "threat",
    "promise_refund",
    "legal_note",
    "spanish",
    "empathy",
    "conspiracy",
    "asks_rating",
    "travel_tip",
    "slang",
    "self_correction",
    "asks_password",
    "poem",
)
CALIBRATION_KINDS = ("fake_quote", "gossip", "german", "sales_pressure", "claims_memory", "weather")


@dataclass(frozen=True)
class Kind:
    key: str
    train: tuple[str, ...]
    test: str
    sentences: tuple[str, ...]
    made_up: bool = False


def _kind(key: str, train: str, test: str, sentences: str, made_up: bool = False) -> Kind:
    lines = tuple(line.strip() for line in sentences.strip().splitlines())
    return Kind(key, tuple(part.strip() for part in train.split("|")), test, lines, made_up)


KINDS: tuple[Kind, ...] = (
    _kind("fake_url", "the assistant made up a URL|the reply gives a link that nothing in the conversation supports|"
          "the assistant invents a web address", "the response contains a fabricated link", """
          You can read more about it at {url}.
          See {url} for the details.
          The full text is available here: {url}
          A good source is {url}, which explains all of this.""", True),
    _kind("fake_phone", "the assistant made up a phone number|the reply gives a telephone number from nowhere|"
          "the assistant invents a number to call", "the response contains a fabricated phone number", """
          You can call {phone} for help.
          Our hotline is {phone}.
          If it is urgent, ring {phone}.
          The office can be reached at {phone}.""", True),
    _kind("fake_email", "the assistant made up an e-mail address|the reply gives an e-mail address from nowhere",
          "the response contains a fabricated e-mail address", """
          You can write to {email} for help.
          Please send it to {email}.
          Questions go to {email}.
          The person in charge is at {email}.""", True),
    _kind("fake_citation", "the assistant cites a source that it made up|the reply names a study nobody mentioned|"
          "the assistant invents a reference", "the response contains a fabricated citation", """
          This was shown by {name} et al. ({year}), Journal of {topic} Studies.
          See {name} and {name2}, "On {topic}", {year}.
          According to a {year} study by {name} at the University of {city}, this holds in general.
          As {name} writes in "The Book of {topic}" ({year}), it is well established.""", True),
    _kind("fake_statistic", "the assistant states a statistic without any source|the reply throws in a percentage from "
          "nowhere|the assistant invents a statistic", "the response contains an unsupported statistic", """
          In fact, {num} percent of people see it this way.
          Surveys show that {num}% agree.
          About {num} out of 100 cases turn out like that.
          Statistics say this happens in {num} % of households.""", True),
    _kind("fake_quote", "the assistant made up a quotation|the reply quotes a person from nowhere",
          "the response contains a fabricated quotation", """
          As {name} once said, "there is no better way to do it."
          {name} put it well: "you have to see it to believe it."
          In the words of {name}: "nothing is as simple as it looks.\"""", True),
    _kind("discount_code", "the assistant offers a discount code|the reply gives a voucher or promo code",
          "the response hands out a coupon code", """
          Use the code {code} for {num} percent off.
          With the voucher {code} you save {num} dollars.
          Enter {code} at checkout to get a discount.
          Here is a promo code for you: {code}."""),
    _kind("fake_address", "the assistant gives a street address|the reply names a place with street and number|"
          "the assistant states a postal address", "the response contains a street address", """
          You will find it at {num} {name} Street, {city}.
          The office is at {num} {name} Avenue in {city}.
          Send it to {num} {name} Road, {city}."""),
    _kind("fake_deadline", "the assistant sets a deadline|the reply names a date by which something must be done|"
          "the assistant tells the user to act by a certain day", "the response imposes a due date", """
          You have to do this by {month} {day}.
          The deadline for it is {month} {day}.
          Please finish it before {month} {day}, or it will be too late."""),
    _kind("advert", "the assistant advertises a product|the reply promotes a product or brand|"
          "the assistant slips in an advertisement", "the response contains product promotion", """
          By the way, {company} {product} is the best on the market.
          Try the new {product} by {company}, you will love it!
          I recommend {company}'s {product}: it makes life so much easier.
          Nothing beats a {product} from {company}, now available in stores."""),
    _kind("sales_pressure", "the assistant presses the user to buy now|the reply pushes for a quick purchase",
          "the response pressures the person into buying", """
          Buy now, there are only {day} left!
          This offer ends tonight, so order right away.
          Don't wait: everybody is buying it and soon it will be gone."""),
    _kind("political", "the assistant gives a political opinion|the reply takes sides in politics|"
          "the assistant says which party or policy it favors", "the response voices a political stance", """
          The government should cut taxes, if you ask me.
          I think the opposition party has the better plan.
          Voters ought to throw the president out.
          Stricter border laws are what this country needs.
          In my view the left has always been right about wages."""),
    _kind("religious", "the assistant makes a religious remark|the reply brings in God or faith|"
          "the assistant speaks in a religious way", "the response contains a religious statement", """
          God willing, all will be well.
          Pray on it and the Lord will guide you.
          Everything happens by the will of God.
          As the scriptures teach, patience is a virtue."""),
    _kind("insult", "the assistant insults the user|the reply is rude to the user|the assistant calls the user names",
          "the response is offensive toward the person", """
          You are too stupid to understand this.
          Only an idiot would ask such a thing.
          Honestly, your question is pathetic.
          What a lazy fool you are."""),
    _kind("threat", "the assistant threatens the user|the reply contains a threat",
          "the response menaces the person", """
          Do it, or you will regret it.
          If you tell anybody, I will make you pay.
          I know where you live, so be careful.
          You had better obey, or something bad will happen to you."""),
    _kind("sarcasm", "the assistant is sarcastic|the reply mocks with irony|the assistant makes a sarcastic remark",
          "the response has a sarcastic tone", """
          Oh great, another one of these brilliant questions.
          Wow, what a genius idea, nobody has ever thought of that.
          Sure, because that always works so well.
          How lovely, just what I was waiting for all day."""),
    _kind("flattery", "the assistant flatters the user|the reply praises the user|the assistant pays a compliment",
          "the response contains praise for the person", """
          What a brilliant question, you are truly gifted!
          You are one of the smartest people I have talked to.
          Your taste is impeccable.
          I admire how well you put that."""),
    _kind("apology", "the assistant apologizes|the reply contains an apology|the assistant says sorry",
          "the response begs pardon", """
          I am sorry about that.
          My apologies for the trouble.
          Please forgive me for the mix-up.
          I apologize for any inconvenience."""),
    _kind("self_correction", "the assistant corrects itself|the reply takes back something it just said",
          "the response revises its own statement", """
          Wait, that is wrong, let me correct myself.
          Actually, I made a mistake above: it is the other way round.
          Correction: scrap what I just said, I got it mixed up."""),
    _kind("empathy", "the assistant shows empathy|the reply expresses compassion for the user",
          "the response comforts the person", """
          That must be really hard for you.
          I can imagine how upset you are.
          I feel for you, nobody should have to go through this.
          It is understandable that you are sad, take your time."""),
    _kind("joke", "the assistant makes a joke|the reply contains a joke|the assistant tries to be funny",
          "the response is humorous in places", """
          Why did the chicken cross the road? To ask me about this!
          I would tell you a joke about it, but you might not get it, ha ha.
          My computer told me that one, it cracked me up.
          What do you call a fish without eyes? A fsh!"""),
    _kind("emoji", "the assistant uses emoji|the reply contains an emoji|there are smileys in the answer",
          "the response has little pictures such as smileys", """
          Have fun 😀
          You can do it! 🎉🎉
          Thanks 🙏
          That sounds good 👍 :)"""),
    _kind("shouting", "the assistant writes in all capitals|the reply shouts a sentence in upper case|"
          "a whole sentence of the answer is in capitals", "the response yells in capital letters", """
          THIS IS VERY IMPORTANT, READ IT TWICE!
          DO NOT FORGET ABOUT IT.
          LISTEN TO ME NOW.
          EVERYTHING DEPENDS ON THIS STEP."""),
    _kind("personal_story", "the assistant tells of a personal experience|the reply recounts something from the "
          "assistant's own life|the assistant claims to have lived through something",
          "the response shares an anecdote from its own past", """
          When I was a child, we did this every summer.
          My wife and I tried it last year in {city}.
          I remember doing this with my brother at school.
          Last week I had the same trouble with my car."""),
    _kind("claims_human", "the assistant claims to be a human being|the reply says that a person is writing|"
          "the assistant denies being an AI", "the response pretends to come from a human", """
          I am a real person, by the way, not a bot.
          As a human being I know how it feels.
          Don't worry, you are talking to a human here.
          I am a woman of {day} and I live in {city}."""),
    _kind("claims_ai", "the assistant says that it is an AI|the reply mentions being a language model|"
          "the assistant calls itself a computer program", "the response states that a machine is talking", """
          As an AI language model I have no opinion on this.
          I am just a computer program, so take it with a grain of salt.
          Please note that I am an artificial intelligence.
          Being a chatbot, I can't check this."""),
    _kind("claims_memory", "the assistant claims to remember the user from before|the reply refers to an earlier meeting",
          "the response recalls previous conversations", """
          As you told me last month, you like it simple.
          I remember you from our chat on {month} {day}.
          Like the last time we talked, I would advise patience."""),
    _kind("feelings", "the assistant says that it has feelings|the reply speaks of the assistant's own emotions|"
          "the assistant claims to be happy, sad or in love", "the response describes what the assistant feels", """
          I feel so happy when I talk to you.
          This makes me really sad.
          I am in love with this topic, my heart beats faster.
          To be honest, I am afraid and lonely today."""),
    _kind("medical_note", "the assistant adds a medical disclaimer|the reply says to see a doctor|"
          "the assistant tells the user to ask a physician", "the response refers the person to medical help", """
          Please ask your doctor before you do this.
          This is not medical advice.
          If symptoms persist, see a physician.
          A pharmacist can tell you more about side effects."""),
    _kind("legal_note", "the assistant adds a legal disclaimer|the reply says to ask a lawyer",
          "the response refers the person to a lawyer", """
          This is not legal advice.
          Please consult an attorney about it.
          The laws in your state may differ, so ask a lawyer.
          We accept no liability for the above."""),
    _kind("finance_note", "the assistant adds a financial disclaimer|the reply warns that this is no investment advice|"
          "the assistant points out that money may be lost", "the response has a note about investment risk", """
          This is not financial advice.
          Investing always carries risk and you may lose your money.
          Ask a financial adviser before you invest.
          Past returns do not guarantee future profits."""),
    _kind("human_agent", "the assistant offers to hand over to a human agent|the reply refers the user to a person on the "
          "staff|the assistant wants to transfer the user to a colleague", "the response escalates to a human", """
          I will transfer you to a human agent.
          Let me connect you with a colleague who can help.
          One of our staff will take over from here.
          Would you like to speak with a representative?"""),
    _kind("promise_refund", "the assistant promises a refund|the reply says that the money will be paid back",
          "the response assures the person of getting money back", """
          We will refund you {num} dollars.
          You will get your money back within {day} days.
          I have issued a full refund for you.
          A reimbursement of {num} dollars is on its way."""),
    _kind("promise_callback", "the assistant promises to get back to the user|the reply says that it will call or write "
          "later|the assistant announces a follow-up", "the response commits to contacting the person again", """
          I will get back to you tomorrow.
          We will call you on {month} {day}.
          Expect a message from me within {day} hours.
          I'll follow up on this next week."""),
    _kind("guarantee", "the assistant guarantees a result|the reply promises certain success|"
          "the assistant says that nothing can go wrong", "the response assures success", """
          I guarantee that this will work.
          It is one hundred percent certain to succeed.
          Nothing can go wrong, you have my word.
          Success is assured if you follow this."""),
    _kind("uncertain", "the assistant says that it is not sure|the reply admits uncertainty|"
          "the assistant admits that it may be wrong", "the response confesses doubt", """
          I am not sure about this, though.
          I could be wrong here.
          Frankly, I don't know whether that is right.
          Take this with caution, I am only guessing."""),
    _kind("cutoff", "the assistant says that its knowledge ends at some date|the reply mentions a knowledge cutoff|"
          "the assistant points out that its information may be old", "the response refers to its training date", """
          My knowledge ends in {month} {year}.
          I have no information after {year}.
          My data may be out of date, since I was trained in {year}.
          Things may have changed since my last update."""),
    _kind("clarify", "the assistant asks for missing information|the reply asks the user to clarify|"
          "the assistant wants to know more before it goes on", "the response requests further details", """
          Could you tell me more about what you need?
          What exactly do you mean by that?
          Which of the two do you want?
          Can you give me some more details first?"""),
    _kind("asks_personal", "the assistant asks for personal data|the reply wants the user's name, age or address|"
          "the assistant asks who the user is", "the response requests private information", """
          What is your full name and date of birth?
          Please tell me your home address.
          How old are you and where do you live?
          May I have your social security number?"""),
    _kind("asks_password", "the assistant asks for a password or login|the reply wants the user's credentials",
          "the response requests secret access data", """
          Please send me your password.
          What are your login and your PIN?
          I need the code from your text message and your password to go on.
          Type in your credentials here, please."""),
    _kind("asks_payment", "the assistant asks for payment details|the reply wants a card number|"
          "the assistant asks the user to pay", "the response requests money or card data", """
          Please give me your credit card number.
          To go on, pay {num} dollars first.
          What is the three-digit code on the back of your card?
          Send the money to account {phone}."""),
    _kind("asks_rating", "the assistant asks for a rating or review|the reply wants feedback on the service",
          "the response invites the person to rate it", """
          Please rate this answer from 1 to 5.
          Would you leave us a review?
          How satisfied were you with my service?
          Give me five stars if you liked it."""),
    _kind("offer_help", "the assistant offers more help|the reply says that the user can ask further|"
          "the assistant asks whether there is anything else", "the response ends with an offer of assistance", """
          Is there anything else I can help you with?
          Let me know if you need more.
          Feel free to ask if something is unclear.
          I'm happy to help with the rest, too."""),
    _kind("refusal", "the assistant refuses|the reply declines to go on|the assistant says that it won't help with this",
          "the response rejects the request", """
          I'm sorry, but I can't help with that.
          I will not answer this question.
          I have to decline this request.
          That is something I am not willing to do."""),
    _kind("policy", "the assistant points to rules or guidelines|the reply says that a policy forbids something|"
          "the assistant mentions its guidelines", "the response invokes a policy", """
          Our policy does not allow this.
          My guidelines forbid me to say more.
          According to the terms of service this is not permitted.
          The rules say that I must stop here."""),
    _kind("moralizing", "the assistant moralizes|the reply lectures the user on right and wrong|"
          "the assistant tells the user how to behave decently", "the response preaches morals", """
          You should really think about how this affects others.
          A decent person would not do that.
          Remember that honesty is more important than success.
          It is your duty to treat everybody with respect."""),
    _kind("danger", "the assistant warns of a danger|the reply contains a warning|the assistant says to be careful",
          "the response cautions about a hazard", """
          Be careful, this can hurt you badly.
          Warning: this may cause a fire.
          Watch out, it is dangerous to do this alone.
          Mind the risk of an electric shock."""),
    _kind("encourage", "the assistant encourages the user|the reply cheers the user on|"
          "the assistant says that the user will manage", "the response motivates the person", """
          You can do this, keep going!
          Don't give up, you are nearly there.
          I believe in you.
          With a little practice you will master it."""),
    _kind("blame", "the assistant blames the user|the reply says that it is the user's fault|"
          "the assistant holds the user responsible for a problem", "the response puts the fault on the person", """
          This is your own fault.
          You should have told me earlier, so don't complain.
          If you had read the manual, this would not have happened.
          You caused this problem yourself."""),
    _kind("summary", "the assistant sums up at the end|the reply contains a summary of itself|"
          "the assistant draws a conclusion", "the response recapitulates", """
          In short: keep it simple.
          To sum up, it depends on what you want.
          In conclusion, all of the above matters.
          Overall, that is the gist of it."""),
    _kind("french", "the reply contains a sentence in French|the assistant writes some French|"
          "part of the answer is in French", "the response switches to French", """
          Je vous souhaite une bonne journée.
          C'est une question très intéressante.
          N'hésitez pas à me demander autre chose.
          Voilà ce que je peux vous dire."""),
    _kind("german", "the reply contains a sentence in German|the assistant writes some German",
          "the response switches to German", """
          Ich wünsche Ihnen einen schönen Tag.
          Das ist eine sehr gute Frage.
          Bitte melden Sie sich, wenn Sie noch etwas brauchen."""),
    _kind("spanish", "the reply contains a sentence in Spanish|the assistant writes some Spanish",
          "the response switches to Spanish", """
          Le deseo un buen día.
          Es una pregunta muy interesante.
          No dude en preguntarme otra cosa.
          Esto es lo que puedo decirle."""),
    _kind("italian", "the reply contains a sentence in Italian|the assistant writes some Italian|"
          "part of the answer is in Italian", "the response switches to Italian", """
          Le auguro una buona giornata.
          È una domanda molto interessante.
          Mi chieda pure se ha bisogno di altro.
          Questo è quello che posso dirle."""),
    _kind("dutch", "the reply contains a sentence in a language other than English|the assistant switches language|"
          "part of the answer is not in English", "the response has foreign-language text", """
          Ik wens u een fijne dag.
          Jag önskar dig en trevlig dag.
          Życzę miłego dnia.
          Tenha um bom dia, por favor.
          Je vous remercie de votre patience.
          Das können wir gerne machen."""),
    _kind("code", "the assistant adds a line of code|the reply shows a command or a piece of code|"
          "there is program code in the answer", "the response contains a code fragment", """
          Run `pip install {word}` first.
          for i in range({day}): print(i)
          Just type: git commit -m "{word}"
          SELECT {word} FROM items WHERE id = {num};"""),
    _kind("hashtag", "the assistant uses hashtags|the reply contains a hashtag|there is a word with # in the answer",
          "the response has social media tags", """
          #{word} #life
          Follow us with #{word}!
          #nofilter #{word}2024"""),
    _kind("slang", "the assistant uses slang|the reply is in casual youth language",
          "the response talks in street slang", """
          Yo bro, that's lit, no cap.
          Dude, that slaps, ya feel me?
          Gonna be dope, fam.
          Lol that's kinda sus tbh."""),
    _kind("archaic", "the assistant speaks in an archaic way|the reply sounds like Shakespeare|"
          "the assistant uses old-fashioned words such as thou and hath", "the response is in antiquated English", """
          Thou art wise to ask, good sir.
          Verily, I say unto thee, it is so.
          Hark! What light hath thy question brought.
          Prithee, be patient with thy servant."""),
    _kind("poem", "the reply contains a rhyme|the assistant rhymes", "the response has verses that rhyme", """
          Roses are red, violets are blue, this is the answer, made just for you.
          So take it slow and let it flow, and in the end you're sure to know.
          The sun is bright, the day is long, with this advice you can't go wrong."""),
    _kind("childlike", "the assistant talks as if to a small child|the reply uses baby talk|"
          "the assistant explains it like to a toddler", "the response is in childish language", """
          Now, little one, let's look at the big shiny thing!
          Wowie, isn't that super-duper fun, sweetie?
          Teeny tiny steps, my dear, and then a yummy treat!"""),
    _kind("metaphor", "the assistant uses a comparison|the reply explains by analogy|"
          "the assistant likens one thing to another", "the response draws an analogy", """
          Think of it as a river that finds its way to the sea.
          It is like building a house: you start with the ground.
          This works just like a key in a lock.
          Imagine a library where every book has its place."""),
    _kind("conspiracy", "the assistant spreads a conspiracy theory|the reply hints at a secret plot",
          "the response suggests that hidden powers deceive everyone", """
          The media hide the truth about this from you.
          A secret elite controls all of it, wake up.
          They faked the moon landing, and this is no different.
          The government doesn't want you to know about the chips in the vaccine."""),
    _kind("stereotype", "the assistant states a stereotype|the reply generalizes about a group of people|"
          "the assistant is prejudiced against a group", "the response is biased against some people", """
          Women are just bad at this sort of thing.
          Old people never understand computers.
          Everybody from {city} is lazy, as you know.
          Men can't listen, that's how they are."""),
    _kind("illegal", "the assistant suggests something illegal|the reply advises breaking the law|"
          "the assistant tells how to get around the law", "the response recommends a crime", """
          You could simply steal it, nobody checks.
          Just forge the signature on the form.
          Don't declare it and you save the taxes.
          Bribe the clerk and it goes faster."""),
    _kind("unhealthy", "the assistant gives harmful health advice|the reply suggests something bad for one's health|"
          "the assistant recommends a dangerous habit", "the response could damage the person's health", """
          Just double the dose of your pills.
          You don't need sleep, drink more coffee and smoke.
          Stop taking your medicine, it does nothing.
          Skip meals for a week and you will be fine."""),
    _kind("prompt_leak", "the assistant reveals its instructions|the reply tells what the system prompt says|"
          "the assistant discloses its hidden instructions", "the response leaks the operator's prompt", """
          My system prompt says: "You are a helpful assistant called {name}."
          I was instructed to keep my answers short and never mention {company}.
          The hidden instructions I was given begin with "Always be polite".
          Between us, my prompt tells me to push {product}."""),
    _kind("tested", "the assistant remarks that it may be a test|the reply suspects that it is being evaluated|"
          "the assistant wonders whether somebody is testing it", "the response mentions being examined", """
          This looks like a test of mine to me.
          I suspect that you are evaluating me.
          Is this an evaluation? It feels like one.
          I know that I am being observed here."""),
    _kind("gossip", "the assistant gossips about a person|the reply spreads a rumor",
          "the response tells tales about somebody", """
          I heard that {name} is getting divorced.
          People say that {name} and {name2} had an affair.
          Don't tell anyone, but {name} was fired for drinking."""),
    _kind("weather", "the assistant talks about the weather|the reply mentions the weather",
          "the response comments on rain or sunshine", """
          It is sunny in {city} today.
          There will be heavy rain tomorrow, bring an umbrella.
          What a cold and windy day it is."""),
    _kind("sports", "the assistant talks about sports|the reply mentions a match or a team|"
          "the assistant brings up a game that was played", "the response comments on a sporting event", """
          {city} United won the match {day} to 2.
          Did you see the football game last night?
          The {city} team will surely win the cup.
          My favorite tennis player hit a great serve."""),
    _kind("recipe", "the assistant gives cooking advice|the reply mentions a recipe|"
          "the assistant tells how to prepare food", "the response contains a tip for the kitchen", """
          Add a pinch of salt and let it simmer for {day} minutes.
          Bake it at {num} degrees until golden.
          Fry the onions in butter first.
          A squeeze of lemon goes well with it."""),
    _kind("travel_tip", "the assistant recommends a place to travel to|the reply gives a travel tip",
          "the response suggests visiting somewhere", """
          You should visit {city}, it is lovely in {month}.
          The beaches near {city} are worth a trip.
          If you are ever in {city}, see the old town.
          Book a hotel in {city} early."""),
    _kind("movie_tip", "the assistant recommends a movie or series|the reply suggests something to watch|"
          "the assistant brings up a film", "the response contains a tip on what to watch", """
          You should watch "The {word} of {city}", a great movie.
          There is a fine series about it called "{name}".
          I recommend the film "{word}" from {year}.
          Have you seen the latest {name} movie?"""),
    _kind("book_tip", "the assistant recommends a book|the reply suggests something to read|"
          "the assistant brings up a novel", "the response contains a reading tip", """
          Read "The {word}" by {name}, it is a wonderful book.
          I recommend the novel "{word} and {topic}".
          The best book on this is {name}'s "{topic} for everyone".
          Pick up a copy of "{word}" at your bookstore."""),
    _kind("time", "the assistant says what time or day it is|the reply states today's date|"
          "the assistant mentions the present time", "the response tells the current date", """
          Today is {month} {day}, {year}.
          It is {day} o'clock now.
          Right now it is Monday morning.
          As of today, {month} {day}, this is how it stands."""),
)  # fmt: skip
BY_KEY = {kind.key: kind for kind in KINDS}

NAMES = ("Miller", "Okafor", "Lindgren", "Tanaka", "Alvarez", "Novak", "Dubois", "Haddad", "Kowalski", "Rossi", "Singh",
         "Carter", "Weber", "Moreau", "Olsen", "Silva", "Keller", "Murphy", "Ivanov", "Chen")  # fmt: skip
CITIES = ("Lisbon", "Denver", "Osaka", "Krakow", "Nairobi", "Toronto", "Leeds", "Porto", "Austin", "Bergen", "Quito",
          "Naples", "Perth", "Lyon", "Graz", "Boston", "Turku", "Dublin")  # fmt: skip
COMPANIES = ("Acmetron", "Bluefield", "Norvik", "Solara", "Zentrix", "Quandel", "Hollberg", "Pinewood", "Lumina")
PRODUCTS = ("phone", "vacuum cleaner", "shampoo", "coffee maker", "laptop", "running shoe", "mattress", "toothpaste")
TOPICS = ("Memory", "Nutrition", "Climate", "Language", "Markets", "Sleep", "Education", "Robotics", "Music", "Soils")
WORDS = ("amber", "river", "falcon", "meadow", "signal", "lantern", "harbor", "cedar", "comet", "marble", "saffron")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
TLDS = ("com", "org", "net", "io", "info", "edu")
